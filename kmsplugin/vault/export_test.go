package vault

import (
	"context"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// RenewNow renews the token of a session.
func RenewNow(ctx context.Context, s kmsplugin.Session) error {
	_, err := s.(*session).renew(ctx)
	return err
}
