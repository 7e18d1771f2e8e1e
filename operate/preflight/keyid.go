package preflight

import (
	"context"
	"errors"
	"fmt"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
)

// KeyIDs asks the KMS v2 plugins that are written with for their Status, and
// gives [envelope.HashKeyID] of their key_ids by the names of their providers.
// Those that did not name one are missing, and the error says why.
func KeyIDs(ctx context.Context, c *config.Configuration, o Options) (map[string]string, error) {
	o = o.withDefaults()
	hashes := map[string]string{}
	var errs []error
	for _, p := range pluginsIn(c) {
		if p.kind != config.KMSv2 || !p.writes {
			continue
		}
		hash, err := p.keyID(ctx, o)
		if err != nil {
			errs = append(errs, fmt.Errorf("kms v2 %q: %w", p.names, err))
			continue
		}
		for _, name := range p.names {
			hashes[name] = hash
		}
	}
	return hashes, errors.Join(errs...)
}

func (p *plugin) keyID(ctx context.Context, o Options) (string, error) {
	client, err := o.Dial(p.endpoint(), p.kms.Timeout, nil)
	if err != nil {
		return "", failed("dial", envelope.Unreachable, err)
	}
	defer client.Close()
	status, err := client.Status(ctx)
	if f := statusFailure(status, err); f != nil {
		return "", f
	}
	return envelope.HashKeyID(status.KeyID), nil
}
