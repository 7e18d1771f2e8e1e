package vault

import (
	"context"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// VersionOf is version n of the key of a config, as it was made at a time.
func VersionOf(c Config, n int, made int64) kmsplugin.Version { return c.version(n, made) }

// RenewNow renews the token of a session.
func RenewNow(ctx context.Context, s kmsplugin.Session) error {
	_, err := s.(*session).renew(ctx)
	return err
}
