package main

import (
	"context"

	"github.com/kube-atrest/atrest/operate/audit"
)

// etcdSource is an etcd that was opened.
type etcdSource interface {
	audit.Store
	Close()
}

// openEtcd opens etcd, of a command that takes no snapshot.
func (s *sourceFlags) openEtcd(ctx context.Context) (etcdSource, error) {
	from, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	return from.(etcdSource), nil
}
