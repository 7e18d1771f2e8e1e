package kmsplugin

import (
	"errors"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// reminder is the time between two lines on what is still wrong.
const reminder = time.Minute

// A reporter logs what changes, and never what stays: of what is wrong one line when it
// begins, one a minute while it lasts, one when it is over. One goroutine uses it.
type reporter struct {
	logger      klog.Logger
	clock       clock.PassiveClock
	trouble     spell // nothing is wrapped
	credentials spell // the changed ones are of no use
}

// A spell is a time for which something is wrong.
type spell struct {
	since, told time.Time
}

// lasts tells what is wrong, if it is time to.
func (s *spell) lasts(r reporter, err error, what string) {
	now := r.clock.Now()
	switch {
	case s.since.IsZero():
		s.since = now
		r.logger.Error(bounded(err), what)
	case now.Sub(s.told) >= reminder:
		r.logger.Error(bounded(err), what, "since", s.since.UTC().Format(time.RFC3339))
	default:
		return
	}
	s.told = now
}

// over tells that it is over, if it had begun.
func (s *spell) over(r reporter, what string, about ...any) {
	if s.since.IsZero() {
		return
	}
	r.logger.Info(what, append(about, "after", r.clock.Since(s.since).Round(time.Second).String())...)
	*s = spell{}
}

// report tells of what changed from one look to the next.
func (r *runner) report(before, after *state) {
	gone := before.without(after)
	if after.keyID != before.keyID {
		v := after.announcing.version
		r.log.logger.Info("DEKs are wrapped under another key_id from now on", "version", oneLine(v.Label), "keyID", after.keyID, "before", before.keyID)
	}
	for _, v := range gone {
		if after.withheld != nil {
			r.log.logger.Info("a version does not unwrap any more, and may not be gone", "version", oneLine(v.Label), "keyID", v.KeyID(), "because", oneLine(after.withheld.Error()))
			continue
		}
		r.log.logger.Info("a version is gone: what is wrapped under it cannot be read by this plugin", "version", oneLine(v.Label), "keyID", v.KeyID())
	}
	if after.trouble != nil {
		r.log.trouble.lasts(r.log, after.trouble, "nothing can be wrapped")
	} else {
		r.log.trouble.over(r.log, "DEKs can be wrapped again", "keyID", after.keyID)
	}
	if f := r.config.Observer.Looked; f != nil {
		f(Look{At: r.looked, Code: CodeOf(after.trouble), KeyID: after.keyID, Announced: after.keyID != before.keyID, Versions: after.versions, Gone: gone})
	}
}

// without are the versions that are gone in another state.
func (s *state) without(other *state) (gone []Version) {
	for keyID, v := range s.ever {
		if _, has := other.ever[keyID]; !has && keyID == v.KeyID() {
			gone = append(gone, v)
		}
	}
	return gone
}

// bounded is an error for the log: one line, and no longer than what crosses the socket.
func bounded(err error) error {
	return errors.New(oneLine(err.Error()))
}
