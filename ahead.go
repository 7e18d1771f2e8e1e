package atrest

import (
	"context"
	"iter"
	"path"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/lookahead"
)

// Warm has the DEKs of stored values unwrapped ahead of their readers, many at a
// time, and returns how many that were when they are there. A server does it by
// itself for the DEKs that it finds in etcd when it starts, see
// [Encryption.RESTOptions].
func (e *Encryption) Warm(ctx context.Context, values iter.Seq[[]byte]) int {
	return e.inUse().Warm(ctx, values)
}

func (e *Encryption) newScout() *lookahead.Scout {
	most := e.options.KMS.MaxDEKs
	if most <= 0 {
		most = envelope.DefaultMaxDEKs
	}
	return lookahead.New(lookahead.Options{Warm: e.Warm, MostDEKs: most, Clock: e.clock, Logger: e.logger})
}

// lookAhead looks for the DEKs of a resource that may be under KMS v2. An etcd
// that is reached through an egress selector is left alone.
func (e *Encryption) lookAhead(resource schema.GroupResource, o generic.RESTOptions) {
	etcd := o.StorageConfig.Transport
	if !e.inUse().ReadsKMS(resource) || etcd.EgressLookup != nil {
		return
	}
	e.ahead.Look(lookahead.Target{
		Resource:  resource.String(),
		Prefix:    path.Join("/", o.StorageConfig.Prefix, o.ResourcePrefix) + "/",
		Endpoints: etcd.ServerList,
		CertFile:  etcd.CertFile, KeyFile: etcd.KeyFile, CAFile: etcd.TrustedCAFile,
	})
}
