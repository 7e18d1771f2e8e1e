// Package served compares the resources that an EncryptionConfiguration names with
// those that the server has. A name that no resource has encrypts nothing, and
// nothing else would tell: the resource that was meant stays in plaintext.
package served

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
)

const (
	// A server that is not ready is asked every so often, for so long.
	askEvery = 2 * time.Second
	askFor   = 5 * time.Minute
	// It is asked again so often as long as a name is not one of its resources: a
	// custom one may be defined meanwhile.
	askAgain = 5 * time.Minute
	// askWithin is how long one look may take.
	askWithin = 30 * time.Second
)

// Watch is what it takes to watch a server. All fields are needed.
type Watch struct {
	// Server leads to the server itself.
	Server *rest.Config
	Clock  clock.Clock
	Logger klog.Logger
	// InUse is the configuration in use, and Changed has a token after it has become
	// another.
	InUse   func() *config.Configuration
	Changed <-chan struct{}
	// Warn is told of each resource of a configuration that the server does not have,
	// once, and Count of how many there are, whenever that may have changed. It is
	// not known while the server has not told all that it has.
	Warn  func(config.Warning)
	Count func(unserved int, known bool)
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	for check := w.begin(); ; {
		var again <-chan time.Time
		if wait := check.look(ctx); wait > 0 {
			again = w.Clock.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.Changed:
			check = w.begin()
		case <-again:
		}
	}
}

// check compares one configuration with what the server has.
type check struct {
	*Watch
	configuration *config.Configuration
	began         time.Time
	settled       bool            // the server has answered, or not for long
	told          map[string]bool // by the path of the field
}

func (w *Watch) begin() *check {
	w.Count(0, false)
	return &check{Watch: w, configuration: w.InUse(), began: w.Clock.Now(), told: map[string]bool{}}
}

// look looks once, and returns when to look again; zero for never.
func (c *check) look(ctx context.Context) time.Duration {
	has, err := servedBy(ctx, c.Server)
	if err != nil {
		return c.unanswered(err)
	}
	c.settled = true
	unknown := 0
	warnings := c.configuration.Unserved(func(r schema.GroupResource) bool {
		if !has.resources[r] && has.unknown[r.Group] {
			unknown++
			return true // nothing speaks against it
		}
		return has.resources[r]
	})
	c.tell(warnings)
	c.Count(len(warnings), len(warnings) > 0 || unknown == 0)
	if len(warnings)+unknown > 0 {
		return askAgain
	}
	return 0
}

// unanswered is a look that did not succeed. What an earlier one found stands.
func (c *check) unanswered(cause error) time.Duration {
	if c.settled {
		return askAgain
	}
	if c.Clock.Since(c.began) < askFor {
		return askEvery
	}
	c.settled = true
	c.Logger.V(1).Info("Did not check whether the server has the resources in the encryption configuration", "cause", cause, "again", askAgain)
	return askAgain
}

// tell warns of what was not warned of before.
func (c *check) tell(warnings []config.Warning) {
	for _, w := range warnings {
		if !c.told[w.Path] {
			c.told[w.Path] = true
			c.Warn(w)
		}
	}
}
