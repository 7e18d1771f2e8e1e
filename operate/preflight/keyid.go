package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
)

// KeyIDs asks the KMS v2 plugins that are written with for their Status, all at once, and
// gives [envelope.HashKeyID] of their key_ids by the names of their providers.
// Those that did not name one are missing, and the error says why.
func KeyIDs(ctx context.Context, c *config.Configuration, o Options) (map[string]string, error) {
	o = o.withDefaults()
	plugins := slices.DeleteFunc(pluginsIn(c), func(p *plugin) bool { return p.kind != config.KMSv2 || !p.writes })
	found, errs := make([]string, len(plugins)), make([]error, len(plugins))
	var asked sync.WaitGroup
	for i, p := range plugins {
		asked.Go(func() { found[i], errs[i] = p.keyID(ctx, o) })
	}
	asked.Wait()
	hashes := map[string]string{}
	for i, p := range plugins {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("kms v2 %q: %w", p.names, errs[i])
			continue
		}
		for _, name := range p.names {
			hashes[name] = found[i]
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
