// Package observe makes a [rotation.Instance] of what an apiserver tells of
// itself: an apiserver of this project by its state at /debug/encryption, any
// kube-apiserver by its metrics. Bytes go in, data comes out; nobody is asked
// here.
//
// Both ask a plugin that they only read with for its Status too. So the key_id of
// the plugin that a rotation leads to is known of each apiserver before anything
// is written with it, and whether that apiserver reaches it there.
package observe

import (
	"fmt"
	"net/http"
	"time"

	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Moment is when an apiserver answered.
type Moment struct {
	// At is by the clock of the observer.
	At time.Time
	// Ahead is how far the clock of the apiserver is ahead of that.
	Ahead time.Duration
}

// MomentOf is the moment of an answer with the header Date, received at a time.
// Without a Date, or with one that is nearly the same, the clocks are taken to be
// the same: it has no more than seconds.
func MomentOf(header http.Header, at time.Time) Moment {
	m := Moment{At: at}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		if ahead := date.Sub(at); ahead < -2*time.Second || ahead > 2*time.Second {
			m.Ahead = ahead
		}
	}
	return m
}

// local is a time of the apiserver's clock by that of the observer.
func (m Moment) local(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(-m.Ahead)
}

// Status reads the state that an apiserver of this project gives at
// /debug/encryption. A provider that writes, with a data key that has sealed
// something, counts as having written now: the next write will be with that key.
func Status(data []byte, m Moment) (rotation.Instance, error) {
	s, err := healthz.Decode(data)
	if err != nil {
		return rotation.Instance{}, err
	}
	i := rotation.Instance{CheckedAt: m.At, Process: s.Process, Server: s.APIServerIDHash, ConfigHash: s.ConfigHash, Providers: map[string]rotation.Provider{}}
	if s.Ended {
		i.Problem = s.Line()
	}
	i.Complete, i.Fixed = s.Providers != nil, s.Reload == nil
	if s.Reload != nil {
		i.ConfigSince, i.Pending = m.local(s.Reload.LoadedAt), pending(s.Reload)
	}
	for _, told := range s.Providers {
		p := rotation.Provider{Healthy: told.State == healthz.Ready, Problem: told.Problem, KeyID: told.KeyIDHash, Told: m.told(told)}
		if told.Role == healthz.Writes && told.DEKWrites > 0 {
			p.WroteKeyID, p.WroteAt, p.DEK = told.KeyIDHash, m.At, told.DEKHash
		}
		for _, name := range told.Names {
			if _, twice := i.Providers[name]; twice {
				i.Providers[name] = rotation.Provider{Problem: fmt.Sprintf("two plugins have the name %q: give each a name of its own", name)}
				continue
			}
			i.Providers[name] = p
		}
	}
	return i, nil
}

// pending is why the file as it is now is not in effect, empty if it is.
func pending(r *healthz.Reload) string {
	switch r.Outcome {
	case healthz.Building:
		return "it waits for the plugins of " + r.BuildingHash
	case healthz.Failed:
		return r.Error
	}
	return ""
}

// told is what is for people.
func (m Moment) told(p healthz.Provider) rotation.Told {
	t := rotation.Told{Role: rotation.RoleReads, WritesFor: p.WritesFor, LastWrite: m.local(p.LastWrite), DEKs: &p.CachedDEKs}
	if p.Role == healthz.Writes {
		t.Role, t.WritesUntil = rotation.RoleWrites, m.local(p.WritesUntil)
	}
	if p.Problem != "" {
		t.Message, t.Since = p.Message, m.local(p.Since)
	}
	return t
}
