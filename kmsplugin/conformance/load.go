package conformance

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

const (
	callers   = 64  // that call at once
	cancelled = 512 // calls of each method; more than any limit of calls that a plugin should have
)

func loadChecks() []Check {
	return []Check{{
		ID:      "answers-in-time",
		Says:    "Each call is answered within the time that an apiserver gives it.",
		Source:  "KEP-3299; the provider's timeout is 3 s by default",
		Suffers: "reads and writes fail now and then, and it starts late: each data key has to be decrypted once.",
		run:     answersInTime,
	}, {
		ID:      "many-callers",
		Says:    "64 callers at once are each given their own answer.",
		Source:  "kubernetes#90856: an apiserver that starts has every data key decrypted",
		Suffers: "it does not come up after a restart, or reads what belongs elsewhere.",
		run:     manyCallers,
	}, {
		ID:      "cancelled-calls-end",
		Says:    "512 calls of each method that were cancelled leave nothing behind that keeps later ones out; whether the work of each ends cannot be seen from outside.",
		Source:  "gRPC; aws-encryption-provider#74",
		Suffers: "every request that a client gives up costs the plugin a part of itself, until it answers nobody.",
		run:     cancelledCallsEnd,
	}}
}

func answersInTime(ctx context.Context, s *session) error {
	for range 20 {
		var w *sealed
		for _, call := range []method{
			{"Encrypt", func(ctx context.Context) (err error) { w, err = s.wrap(ctx); return err }},
			{"Status", func(ctx context.Context) error { _, err := s.status(ctx); return err }},
			{"Decrypt", func(ctx context.Context) error { return s.opens(ctx, w) }},
		} {
			if err := s.inTime(ctx, call); err != nil {
				return err
			}
		}
	}
	return nil
}

// A method is one of the plugin's, and a call of it.
type method struct {
	name string
	call func(context.Context) error
}

// inTime fails for a call that the plugin has taken and answers late, or not while it is waited for.
func (s *session) inTime(ctx context.Context, m method) error {
	var seen watch
	took, err := timed(func() error { return m.call(watching(ctx, &seen)) })
	switch {
	case took <= s.Timeout:
		return err
	case err == nil:
		return failed("%s took %s", m.name, took.Round(time.Millisecond))
	case seen.isThePlugins(err):
		return failed("%s was not answered well within %s: %v", m.name, took.Round(time.Millisecond), err)
	}
	return err
}

func timed(call func() error) (time.Duration, error) {
	start := time.Now()
	err := call()
	return time.Since(start), err
}

func manyCallers(ctx context.Context, s *session) error {
	if err := s.roundTrips(ctx, 1); err != nil {
		return fmt.Errorf("one caller alone: %w", err)
	}
	found := make(chan error, callers)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			<-begin
			found <- s.roundTrips(ctx, 2)
		})
	}
	close(begin)
	all.Wait()
	close(found)
	for err := range found {
		if err != nil {
			return failed("one of %d callers: %v", callers, err)
		}
	}
	return nil
}

func (s *session) roundTrips(ctx context.Context, n int) error {
	for range n {
		w, err := s.wrap(ctx)
		if err != nil {
			return err
		}
		if err := s.opens(ctx, w); err != nil {
			return err
		}
		if _, err := s.keyID(ctx); err != nil {
			return err
		}
	}
	return nil
}

func cancelledCallsEnd(ctx context.Context, s *session) error {
	before, err := s.wrap(ctx)
	if err != nil {
		return err
	}
	if err := s.isWell(ctx, before); err != nil {
		return fmt.Errorf("before any call was cancelled: %w", err)
	}
	for _, m := range s.methods(before) {
		usual, err := s.usually(ctx, m)
		if err != nil {
			return err
		}
		if n := s.cancelMany(ctx, m, usual); n < cancelled {
			return cmp.Or(ctx.Err(), fmt.Errorf("%d calls of %s were cancelled, and all others are answered before they can be", n, m.name))
		}
		// The last of them may take a moment to end.
		if late := eventually(ctx, s.patience(), func() bool { err = s.isWell(ctx, before); return err == nil }); late != nil {
			return s.bringBack(ctx, failed("after %d calls of %s that were cancelled: %v", cancelled, m.name, err))
		}
	}
	return nil
}

// usually is how long one call takes alone: Status mostly much less than those for which the KMS is asked.
func (s *session) usually(ctx context.Context, m method) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	took, err := timed(func() error { return m.call(ctx) })
	return took, s.told.heard(m.name, err)
}

// isWell is an error unless w opens, and some calls after it are answered.
func (s *session) isWell(ctx context.Context, w *sealed) error {
	if err := s.opens(ctx, w); err != nil {
		return err
	}
	return s.roundTrips(ctx, 4)
}

// methods are all of the plugin's, each with a call of which nobody needs the answer.
func (s *session) methods(w *sealed) []method {
	return []method{{"Encrypt", func(ctx context.Context) error {
		_, err := s.client.Encrypt(ctx, &kmsapi.EncryptRequest{Plaintext: s.told.key(), Uid: s.told.uid()})
		return err
	}}, {"Decrypt", func(ctx context.Context) error {
		_, err := s.client.Decrypt(ctx, &kmsapi.DecryptRequest{Ciphertext: w.Ciphertext, KeyId: w.KeyId, Annotations: w.Annotations, Uid: s.told.uid()})
		return err
	}}, {"Status", func(ctx context.Context) error {
		_, err := s.client.Status(ctx, &kmsapi.StatusRequest{})
		return err
	}}}
}

// cancelMany cancels calls, each a while after its request was sent, and tells how many did end by
// that: those that are faster are made up for, and cancelled in half the time. The whiles are spread over
// the time that calls take, so that some are cancelled at each point of the plugin's work.
func (s *session) cancelMany(ctx context.Context, m method, usual time.Duration) int {
	var n atomic.Int64
	for round := 0; n.Load() < cancelled && round < 12 && ctx.Err() == nil; round++ {
		for begun := 0; begun < cancelled; begun += callers {
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					if s.cancelOne(ctx, m, usual*time.Duration(begun+i)/cancelled>>round) {
						n.Add(1)
					}
				})
			}
			all.Wait()
		}
	}
	return int(n.Load())
}

// cancelOne reports whether a call ends by being cancelled.
func (s *session) cancelOne(ctx context.Context, m method, after time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	sent := func() { time.AfterFunc(after, cancel) }
	err := m.call(whenSent(ctx, sent))
	if status.Code(err) == codes.Canceled {
		return true
	}
	_ = s.told.heard(m.name, err) // it was faster, or failed; what it said is still looked at
	return false
}
