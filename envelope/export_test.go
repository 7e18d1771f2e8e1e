package envelope

import "github.com/kube-atrest/atrest/internal/plugin"

// Known is what is known of the plugin, for tests from outside.
func (p *Provider) Known() *plugin.Known { return p.followed.Load() }
