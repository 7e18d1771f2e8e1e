package envelope

import (
	"context"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// Known is what is known of the plugin, for tests from outside.
func (p *Provider) Known() *plugin.Known { return p.followed.Load() }

// Asked waits until the plugin was asked in the provider's present role, whatever
// came of it.
func (p *Provider) Asked(ctx context.Context) error { return p.followed.Asked(ctx) }
