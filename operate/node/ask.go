package node

import (
	"context"
	"time"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/operate/preflight"
)

// Health is what a plugin was last found to be. It holds no key material and no key_id, but its
// hash.
type Health struct {
	// At is when it was asked last, zero if it never was.
	At time.Time `json:"at,omitzero"`
	// Serving tells that the instance itself answered, whatever it said; Well that it
	// encrypts and decrypts.
	Serving bool `json:"serving"`
	Well    bool `json:"well"`
	// KeyIDHash is "sha256:" and the hash of the key_id that it named last.
	KeyIDHash string `json:"keyIDHash,omitempty"`
	// SilentSince is since when it has answered nothing, zero if it did when it was asked last.
	SilentSince time.Time `json:"silentSince,omitzero"`
	// LastWell is when it was last well. LastFailure is when it last was not, and Class and
	// Message are what was wrong then.
	LastWell    time.Time      `json:"lastWell,omitzero"`
	LastFailure time.Time      `json:"lastFailure,omitzero"`
	Class       plugin.Problem `json:"class,omitempty"`
	Message     string         `json:"message,omitempty"`
}

// silent tells for how long it has answered nothing, as far as it was asked.
func (h Health) silent() time.Duration {
	if h.SilentSince.IsZero() {
		return 0
	}
	return h.At.Sub(h.SilentSince)
}

// account is what is known of an instance: how it is, and what it wrapped last and opened.
type account struct {
	Health
	sample *preflight.Sample
}

// asked asks one instance, on its own socket. It is for one goroutine.
type asked struct {
	spec    Spec
	runner  Runner
	timeout time.Duration
	tried   string // hash of the key_id with which it encrypts and decrypts, since it was last not well
	last    account
}

// ask asks it now, and gives what is known then. now is called when it has answered.
func (a *asked) ask(ctx context.Context, now func() time.Time) account {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	keyIDHash, f := a.look(ctx)
	l := &a.last
	l.At = now()
	l.Well = f == nil
	l.Serving = keyIDHash != "" || f.Problem != plugin.Unreachable && f.Problem != plugin.TimedOut
	switch {
	case l.Serving:
		l.SilentSince = time.Time{}
	case l.SilentSince.IsZero():
		l.SilentSince = l.At
	}
	if keyIDHash != "" {
		l.KeyIDHash = keyIDHash
	}
	if f == nil {
		a.tried, l.LastWell = keyIDHash, l.At
		return *l
	}
	a.tried = ""
	l.LastFailure, l.Class, l.Message = l.At, f.Problem, f.Text
	return *l
}

// look is by a connection of its own each time, as an apiserver makes one that starts: one that is kept
// goes on when the socket has been removed.
func (a *asked) look(ctx context.Context) (keyIDHash string, f *preflight.Failure) {
	conn, err := dial(a.spec, a.runner, a.timeout)
	if err != nil {
		return "", &preflight.Failure{Step: "dial", Problem: plugin.Unreachable, Err: err, Text: err.Error()}
	}
	defer conn.Close()
	keyIDHash, sample, f := preflight.Ask(ctx, envelope.Over(conn), a.tried)
	if sample != nil && f == nil {
		a.last.sample = sample
	}
	return keyIDHash, f
}
