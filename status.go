package atrest

import (
	"context"
	"net/http"
	"time"

	apihealthz "k8s.io/apiserver/pkg/server/healthz"

	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/reload"
)

// Status is what is known now. Nobody is asked.
func (e *Encryption) Status() healthz.Status {
	if e == nil {
		return healthz.Status{}
	}
	inUse := e.inUse()
	s := healthz.Status{
		Process: e.process, ConfigFile: e.options.ConfigFile, ConfigHash: inUse.Configuration().Hash(), Providers: inUse.Health(),
	}
	if c := e.controller.Load(); c != nil {
		s.Reload = reloadStatus(c.Status())
	}
	return s.Told(e.clock.Now())
}

func reloadStatus(r reload.Status) *healthz.Reload {
	s := &healthz.Reload{LoadedAt: r.LoadedAt, Outcome: healthz.Loaded, FailedHash: r.FailedHash, FailedSince: r.FailedSince, Retrying: r.Retrying}
	if r.LastError != nil {
		s.Outcome, s.Error = healthz.Failed, r.LastError.Error()
	}
	if r.Building != "" && r.Building != r.FailedHash {
		s.Outcome, s.BuildingHash = healthz.Building, r.Building
	}
	if r.WatchError != nil {
		s.NoEvents = r.WatchError.Error()
	}
	return s
}

// HealthChecker is the check kms-providers, for healthz and readyz and not for
// livez: a restart mends no plugin.
func (e *Encryption) HealthChecker() apihealthz.HealthChecker { return healthz.Check(e.Status) }

// ServeStatus answers requests for [healthz.Path] with [Encryption.Status] as JSON,
// and leaves all others to next. A POST to [healthz.AskPath] has every plugin asked
// how it is before: what it says, such as a new key_id, is known then instead of at
// the next poll. One that was asked within the last second is not asked again. Both
// have to stand behind authentication and authorization; [Options.ApplyTo] and
// [Encryption.Install] put them there.
func (e *Encryption) ServeStatus(next http.Handler) http.Handler {
	if e == nil {
		return next
	}
	return healthz.Handler(e.Status, e.ask, next)
}

// askTimeout bounds how long an answer waits for plugins that hang.
const askTimeout = 10 * time.Second

// ask has the plugins asked, and waits for those that answer in time.
func (e *Encryption) ask(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer e.clock.AfterFunc(askTimeout, cancel).Stop()
	e.inUse().Ask(ctx)
}
