package preflight_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/bubble"
	"github.com/kube-atrest/atrest/operate/preflight"
)

// candidate is a plugin that works, but for what a test spoils in one of its answers.
type candidate struct {
	envelope.Plugin
	asked  int
	status func(try int) (envelope.Status, error)
	wraps  func(dek []byte) (envelope.Wrapped, error)
	opens  func(w envelope.Wrapped) ([]byte, error)
	begun  []time.Duration
	start  time.Time
}

func newCandidate() *candidate {
	return &candidate{
		status: func(int) (envelope.Status, error) { return wellStatus, nil },
		wraps: func(dek []byte) (envelope.Wrapped, error) {
			return envelope.Wrapped{Ciphertext: flipped(dek), KeyID: "k1"}, nil
		},
		opens: func(w envelope.Wrapped) ([]byte, error) { return flipped(w.Ciphertext), nil },
		start: time.Now(),
	}
}

var wellStatus = envelope.Status{Version: "v2", Healthz: "ok", KeyID: "k1"}

func flipped(of []byte) []byte {
	out := bytes.Clone(of)
	for i := range out {
		out[i] ^= 0xff
	}
	return out
}

func (c *candidate) Status(context.Context) (envelope.Status, error) {
	c.asked++
	c.begun = append(c.begun, time.Since(c.start))
	return c.status(c.asked)
}

func (c *candidate) Encrypt(_ context.Context, dek []byte) (envelope.Wrapped, error) {
	return c.wraps(dek)
}

func (c *candidate) Decrypt(_ context.Context, w envelope.Wrapped) ([]byte, error) { return c.opens(w) }

func tried(c *candidate, more preflight.Candidate) preflight.Verdict {
	more.Hash, more.Plugin = "sha256:of-the-bundle", c
	return preflight.Trial{}.Of(context.Background(), more)
}

func TestACandidateThatWorksPassesForItsHash(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dek := []byte("a DEK of what is stored")
		var looked []string
		look := func(name string) preflight.Step {
			return preflight.Step{Name: name, Try: func(context.Context) error { looked = append(looked, name); return nil }}
		}
		v := tried(newCandidate(), preflight.Candidate{
			Samples: []*preflight.Sample{{Wrapped: envelope.Wrapped{Ciphertext: flipped(dek), KeyID: "k0"}, DEK: dek}},
			Steps:   []preflight.Step{look("clashes"), look("quick checks")},
		})
		require.Equal(t, preflight.Verdict{
			Hash: "sha256:of-the-bundle", Outcome: preflight.Passed, KeyIDHash: envelope.HashKeyID("k1"), Tries: 1,
		}, v)
		require.Equal(t, []string{"clashes", "quick checks"}, looked)
	})
}

// A blip needs no change of what is tried.
func TestWhatIsOverSoonIsTriedAgainWithBackoff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCandidate()
		c.status = func(try int) (envelope.Status, error) {
			if try < 5 {
				return envelope.Status{}, status.Error(codes.Unavailable, "starting")
			}
			return wellStatus, nil
		}
		v := tried(c, preflight.Candidate{})
		require.Equal(t, preflight.Passed, v.Outcome)
		require.Equal(t, []time.Duration{0, 2 * time.Second, 6 * time.Second, 14 * time.Second, 30 * time.Second}, c.begun)
	})
}

func TestWhatStaysTransientIsNotYetAndNeverRefused(t *testing.T) {
	for name, spoil := range map[string]func(c *candidate){
		"away":     func(c *candidate) { c.status = failing(codes.Unavailable) },
		"slow":     func(c *candidate) { c.status = failing(codes.DeadlineExceeded) },
		"denied":   func(c *candidate) { c.status = failing(codes.PermissionDenied) },
		"throttle": func(c *candidate) { c.status = failing(codes.ResourceExhausted) },
		"disabled": func(c *candidate) { c.status = failing(codes.FailedPrecondition) },
		"unknown":  func(c *candidate) { c.status = failing(codes.Internal) },
		"not well": func(c *candidate) {
			c.status = func(int) (envelope.Status, error) {
				return envelope.Status{Version: "v2", Healthz: "no", KeyID: "k1"}, nil
			}
		},
		"encrypt": func(c *candidate) {
			c.wraps = func([]byte) (envelope.Wrapped, error) {
				return envelope.Wrapped{}, status.Error(codes.Unavailable, "x")
			}
		},
		"decrypt": func(c *candidate) {
			c.opens = func(envelope.Wrapped) ([]byte, error) { return nil, status.Error(codes.Unavailable, "x") }
		},
		"rotating": func(c *candidate) {
			c.wraps = func(dek []byte) (envelope.Wrapped, error) {
				return envelope.Wrapped{Ciphertext: flipped(dek), KeyID: "k2"}, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				c := newCandidate()
				spoil(c)
				v := tried(c, preflight.Candidate{})
				require.Equal(t, preflight.NotYet, v.Outcome)
				require.Equal(t, 6, v.Tries)
				require.NotEmpty(t, v.Failure.Text)
			})
		})
	}
}

func failing(code codes.Code) func(int) (envelope.Status, error) {
	return func(int) (envelope.Status, error) { return envelope.Status{}, status.Error(code, "x") }
}

func TestWhatNoTryMendsIsRefusedAtOnce(t *testing.T) {
	other := []byte("another DEK than it wrapped, of 32")
	for name, spoil := range map[string]func(c *candidate, more *preflight.Candidate){
		"no key_id": func(c *candidate, _ *preflight.Candidate) {
			c.status = func(int) (envelope.Status, error) { return envelope.Status{Version: "v2", Healthz: "ok"}, nil }
		},
		"version": func(c *candidate, _ *preflight.Candidate) {
			c.status = func(int) (envelope.Status, error) {
				return envelope.Status{Version: "v9", Healthz: "ok", KeyID: "k1"}, nil
			}
		},
		"in the clear": func(c *candidate, _ *preflight.Candidate) {
			c.wraps = func(dek []byte) (envelope.Wrapped, error) { return envelope.Wrapped{Ciphertext: dek, KeyID: "k1"}, nil }
		},
		"another DEK": func(c *candidate, _ *preflight.Candidate) {
			c.opens = func(envelope.Wrapped) ([]byte, error) { return other, nil }
		},
		"another KEK": func(_ *candidate, more *preflight.Candidate) {
			more.Samples = []*preflight.Sample{{Wrapped: envelope.Wrapped{Ciphertext: []byte("x"), KeyID: "k1"}, DEK: other}}
		},
		"a clash": func(_ *candidate, more *preflight.Candidate) {
			more.Steps = []preflight.Step{{Name: "clashes", Try: func(context.Context) error { return preflight.Final(errors.New("port 8095 is taken")) }}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				c, more := newCandidate(), preflight.Candidate{}
				spoil(c, &more)
				v := tried(c, more)
				require.Equal(t, preflight.Refused, v.Outcome, v.Failure)
				require.Equal(t, 1, v.Tries)
				require.Equal(t, "sha256:of-the-bundle", v.Hash)
				require.NotEmpty(t, v.Failure.Text)
			})
		})
	}
}

func TestAStepThatCouldNotBeTakenIsTriedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tries := 0
		v := tried(newCandidate(), preflight.Candidate{Steps: []preflight.Step{{Name: "quick checks", Try: func(context.Context) error {
			if tries++; tries < 3 {
				return errors.New("no connection")
			}
			return nil
		}}}})
		require.Equal(t, preflight.Passed, v.Outcome)
		require.Equal(t, 3, v.Tries)
	})
}

// Where the one in use goes on, what the candidate writes has to be read by it.
func TestThePluginInUseHasToOpenWhatTheCandidateWrapsWhileItWorks(t *testing.T) {
	other := []byte("another DEK than it was given")
	no := func(envelope.Wrapped) ([]byte, error) { return nil, status.Error(codes.NotFound, "x") }
	for name, row := range map[string]struct {
		spoil func(inUse *candidate)
		want  preflight.Outcome
		says  string
	}{
		"it does":            {func(*candidate) {}, preflight.Passed, ""},
		"it has no such key": {func(c *candidate) { c.opens = onlyOwn(no) }, preflight.NotYet, "it cannot"},
		"it opens something else": {func(c *candidate) {
			c.opens = onlyOwn(func(envelope.Wrapped) ([]byte, error) { return other, nil })
		}, preflight.NotYet, "it cannot"},
		"it does not say": {func(c *candidate) {
			c.opens = onlyOwn(func(envelope.Wrapped) ([]byte, error) { return nil, status.Error(codes.Internal, "sesame") })
		}, preflight.NotYet, "it was not seen to (error)"},
		"it works no longer":       {func(c *candidate) { c.opens = no }, preflight.Passed, ""},
		"it is away":               {func(c *candidate) { c.status, c.opens = failing(codes.Unavailable), no }, preflight.Passed, ""},
		"it learns of the version": {func(c *candidate) { c.opens = onlyOwn(later(no, 3)) }, preflight.Passed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				inUse := newCandidate()
				inUse.wraps = func(dek []byte) (envelope.Wrapped, error) {
					return envelope.Wrapped{Ciphertext: flipped(dek), KeyID: "k1", Annotations: own}, nil
				}
				row.spoil(inUse)
				v := tried(newCandidate(), preflight.Candidate{InUse: inUse})
				require.Equal(t, row.want, v.Outcome, v.Failure)
				if row.says != "" {
					require.Contains(t, v.Failure.Text, "have the plugin in use open what this one has wrapped: "+row.says)
					require.NotContains(t, v.Failure.Text, "sesame")
				}
			})
		})
	}
}

// own is what a plugin in use adds to what it wraps itself.
var own = map[string][]byte{"own.example.com": nil}

// onlyOwn opens what has that, and does with the rest as it is told.
func onlyOwn(rest func(envelope.Wrapped) ([]byte, error)) func(envelope.Wrapped) ([]byte, error) {
	return func(w envelope.Wrapped) ([]byte, error) {
		if w.Annotations != nil {
			return flipped(w.Ciphertext), nil
		}
		return rest(w)
	}
}

// later opens what it is asked for from some time on.
func later(first func(envelope.Wrapped) ([]byte, error), times int) func(envelope.Wrapped) ([]byte, error) {
	return func(w envelope.Wrapped) ([]byte, error) {
		if times--; times >= 0 {
			return first(w)
		}
		return flipped(w.Ciphertext), nil
	}
}

// What ends before all of it was seen has not passed, and is not refused.
func TestATrialThatIsInterruptedDecidesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		v := preflight.Trial{}.Of(ctx, preflight.Candidate{Plugin: newCandidate(), Steps: []preflight.Step{{
			Name: "the last", Try: func(context.Context) error { interrupt(); return nil },
		}}})
		require.Equal(t, preflight.NotYet, v.Outcome)
		require.Equal(t, 1, v.Tries)
	})
}
