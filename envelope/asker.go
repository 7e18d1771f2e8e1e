package envelope

import (
	"context"
	"fmt"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// asker asks a plugin for its Status and judges the answer, the same for one
// that is written with and one that is only read with. It is for one goroutine.
type asker struct {
	plugin  Plugin
	opts    *Options
	version string // of the API, pinned to the first that Status named
}

func (p *Provider) asker() asker { return asker{plugin: p.plugin, opts: &p.opts} }

// follow has the loop of its owner ask, when the loop before has ended.
func (a *asker) follow(before *plugin.Loop, ask func(context.Context) error) *plugin.Loop {
	polls := plugin.Polls{Clock: a.opts.Clock, Healthy: a.opts.HealthyPoll, Unhealthy: a.opts.UnhealthyPoll, Wake: a.plugin.Wake()}
	return plugin.Follow(polls, before, ask)
}

// status calls Status and finds what is wrong with the answer. The key_id of an
// answer without one that can be used is empty.
func (a *asker) status(ctx context.Context) (Status, *plugin.Trouble) {
	s, err := a.plugin.Status(ctx)
	if err != nil {
		return Status{}, &plugin.Trouble{Problem: plugin.ProblemOf(err), Err: fmt.Errorf("status: %w", err)}
	}
	if err := stored.ValidateKeyID(s.KeyID); err != nil {
		a.opts.Observer.KeyIDRefused(err)
		return Status{}, plugin.Troublef(BadKeyID, "status: %w", err)
	}
	a.opts.Observer.StatusSeen(s.KeyID)
	if s.Healthz != "ok" {
		return s, plugin.Troublef(Unhealthy, "status: the plugin reports healthz %.300q, not \"ok\"", s.Healthz)
	}
	return s, a.checkVersion(s.Version)
}

func (a *asker) checkVersion(v string) *plugin.Trouble {
	if v != "v2" && v != "v2beta1" {
		return plugin.Troublef(BadVersion, "status: the plugin speaks version %.100q of the KMS API, not v2 or v2beta1", v)
	}
	if a.version == "" {
		a.version = v
	}
	if v != a.version {
		return plugin.Troublef(BadVersion, "status: the plugin changed its KMS API version from %s to %s; restart the apiserver if that is meant", a.version, v)
	}
	return nil
}
