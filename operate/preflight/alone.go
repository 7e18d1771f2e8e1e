package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/config"
)

// Alone asks the plugin of a KMS provider to encrypt, and to decrypt what it encrypted,
// for an apiserver that is the only one: that has what it wrote in memory, and nobody
// else has to ask the plugin for it. The plugin has to name the key_id of the hash,
// unless that is empty.
func Alone(ctx context.Context, c *config.Configuration, apiserver, provider, keyIDHash string) error {
	if err := opens(ctx, c, provider, keyIDHash); err != nil {
		return fmt.Errorf("there is one apiserver alone, so nobody reads what it writes, and the plugin of %q cannot be seen to decrypt from here: %w: "+
			"run this on the machine of %s, or run atrest check there and say --plugin-checked", provider, err, apiserver)
	}
	return nil
}

func opens(ctx context.Context, c *config.Configuration, provider, keyIDHash string) error {
	for _, result := range Check(ctx, c, Options{}) {
		switch {
		case !slices.Contains(result.Names, provider):
		case result.Failure != nil:
			return result.Failure
		case result.Decrypt == 0:
			return fmt.Errorf("it was not asked to decrypt: %s", strings.Join(result.Warnings, "; "))
		case keyIDHash != "" && result.KeyIDHash != keyIDHash:
			return fmt.Errorf("the plugin at %s names key_id %s, and %s is written under: it is another one, or has changed just now", result.Endpoint, result.KeyIDHash, keyIDHash)
		default:
			return nil
		}
	}
	return fmt.Errorf("the configuration has no provider %q", provider)
}
