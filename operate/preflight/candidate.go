package preflight

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// Candidate is a plugin that is to be used: it runs beside those in use, on its future
// socket and with its future credentials.
type Candidate struct {
	// Hash names exactly what is tried, settings and credentials included.
	Hash string
	// Plugin is asked for Status, and to wrap a random DEK and unwrap it.
	Plugin envelope.Plugin
	// Expected is [envelope.HashKeyID] of the key_id that it has to name, empty for any.
	Expected string
	// Samples are what the one in use wrapped, where it should have the same KEK: it has to
	// open them.
	Samples []*Sample
	// InUse is the plugin in use, nil if there is none. While it works it has to open what the candidate
	// wraps: on other machines it may be in use for longer.
	InUse envelope.Plugin
	// Steps are what else is looked at, in turn: clashes of sockets and ports, the quick
	// checks of the conformance kit.
	Steps []Step
}

// Step is one look at a candidate. An error that [Final] made is final, and any other one
// transient: what could not be looked at may be well.
type Step struct {
	Name string
	Try  func(context.Context) error
}

// finalError is what another try would find again.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// Final marks what another try would find again, for the same hash.
func Final(err error) error { return finalError{err} }

// Outcome is how the trial of a candidate ended.
type Outcome string

// The outcomes. Of a candidate that is NotYet well nothing is decided: it may be tried
// again without a change.
const (
	Passed  Outcome = "passed"
	Refused Outcome = "refused"
	NotYet  Outcome = "not yet"
)

// Verdict is what a trial has found. It is of one hash, and says nothing of any other.
type Verdict struct {
	Hash    string  `json:"hash"`
	Outcome Outcome `json:"outcome"`
	// KeyIDHash is [envelope.HashKeyID] of the key_id that Status named last, empty for none.
	KeyIDHash string `json:"keyIDHash,omitempty"`
	// Failure is why it has not passed; of several tries, the last.
	Failure *Failure `json:"failure,omitempty"`
	Tries   int      `json:"tries"`
}

// Trial is how a candidate is tried. The zero value of each field is its default.
type Trial struct {
	// Tries bounds how often a transient finding is looked at anew; default 6. Below 0 only the end
	// of ctx does.
	Tries int
	// Pause is the time before the second try, 2 s by default. It doubles from try to try,
	// up to MaxPause, 30 s by default.
	Pause    time.Duration
	MaxPause time.Duration
	Clock    clock.Clock
	Random   io.Reader
	// Each, if not nil, is called with what each try has found, before the pause after it.
	Each func(Verdict)
}

func (t Trial) withDefaults() Trial {
	if t.Tries == 0 {
		t.Tries = 6
	}
	if t.Pause <= 0 {
		t.Pause = 2 * time.Second
	}
	if t.MaxPause <= 0 {
		t.MaxPause = 30 * time.Second
	}
	if t.Clock == nil {
		t.Clock = clock.RealClock{}
	}
	if t.Random == nil {
		t.Random = rand.Reader
	}
	return t
}

// Of tries a candidate until it passes, something final is found, the tries are used up or
// ctx ends. Each try is the whole sequence, as what an earlier one saw may be over.
func (t Trial) Of(ctx context.Context, c Candidate) Verdict {
	t = t.withDefaults()
	v := Verdict{Hash: c.Hash, Outcome: NotYet}
	for pause := t.Pause; ; pause = min(2*pause, t.MaxPause) {
		v.Tries++
		v.KeyIDHash, v.Failure = c.try(ctx, t)
		switch {
		case v.Failure == nil:
			v.Outcome = Passed
		case v.Failure.final():
			v.Outcome = Refused
		}
		if t.Each != nil {
			t.Each(v)
		}
		if v.Outcome != NotYet || v.Tries == t.Tries {
			return v
		}
		select {
		case <-ctx.Done():
			return v
		case <-t.Clock.After(pause):
		}
	}
}

// try is one look at all of it. What is final has to be found of a plugin that is well, also
// after it: what is found while a KMS goes away tells nothing of the plugin.
func (c Candidate) try(ctx context.Context, t Trial) (keyIDHash string, f *Failure) {
	keyIDHash, wrapped, f := c.well(ctx, t)
	if f != nil {
		return keyIDHash, f
	}
	if f = c.more(ctx, wrapped); f == nil && ctx.Err() == nil {
		return keyIDHash, nil
	}
	if ctx.Err() != nil { // what passes is what was seen in time
		return keyIDHash, callFailed("end", ctx.Err())
	}
	if _, _, ill := c.well(ctx, t); f.final() && ill != nil {
		return keyIDHash, ill
	}
	return keyIDHash, f
}

// well is why a plugin cannot be used as it is, and what it has wrapped if it can.
func (c Candidate) well(ctx context.Context, t Trial) (keyIDHash string, wrapped *Sample, f *Failure) {
	var r Result
	wrapped, f = (&plugin{kind: config.KMSv2, writes: true}).ask(ctx, c.Plugin, Options{Clock: t.Clock, Random: t.Random}.withDefaults(), &r)
	if f == nil && c.Expected != "" && r.KeyIDHash != c.Expected {
		f = failed("status", envelope.Disagreement, fmt.Errorf("it names key_id %s, and %s was expected", r.KeyIDHash, c.Expected))
	}
	return r.KeyIDHash, wrapped, f
}

// more is what else is wrong.
func (c Candidate) more(ctx context.Context, wrapped *Sample) *Failure {
	for _, sample := range c.Samples {
		if f := sample.open(ctx, c.Plugin); f != nil {
			f.Step = "open what the plugin in use has wrapped"
			if answer(f) == bundle.No {
				f.Err = Final(f.Err)
				f.Text = f.Step + ": it cannot: it has another KEK, and needs another keyID: " + f.Err.Error()
			}
			return f
		}
	}
	if c.InUse != nil {
		if f := opensBack(ctx, c.InUse, wrapped); f != nil {
			return f
		}
	}
	for _, step := range c.Steps {
		if err := step.Try(ctx); err != nil {
			return &Failure{Step: step.Name, Problem: envelope.Failed, Err: err, Text: fmt.Sprintf("%s: %v", step.Name, err)}
		}
	}
	return nil
}

// opensBack is why a plugin in use does not open what the candidate has wrapped, nil if it works no longer
// at all. It is never final: that one may not know yet of a version that the candidate knows. What it says
// is not repeated, as nobody here knows its credentials.
func opensBack(ctx context.Context, inUse envelope.Plugin, wrapped *Sample) *Failure {
	f := wrapped.open(ctx, inUse)
	if f == nil {
		return nil
	}
	if _, _, ill := Ask(ctx, inUse, ""); ill != nil {
		return nil
	}
	why := fmt.Sprintf("it was not seen to (%s)", f.Problem)
	if answer(f) == bundle.No {
		why = "it cannot"
	}
	const step = "have the plugin in use open what this one has wrapped"
	return &Failure{Step: step, Problem: envelope.Failed, Err: f.Err, Text: step + ": " + why + ": where that one is in use still, what is written with this one could not be read; another KEK needs another keyID"}
}

// final reports whether another try would find the same, without a change of what is
// tried. A right that lacks or a key that is disabled may be given back at the KMS.
func (f *Failure) final() bool {
	switch f.Problem {
	case envelope.BadVersion, envelope.BadKeyID, envelope.BadAnswer:
		return true
	}
	var final finalError
	return errors.As(f.Err, &final)
}
