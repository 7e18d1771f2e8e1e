package conformance

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

const (
	callers   = 64  // that call at once
	cancelled = 512 // calls; more than any limit of calls that a plugin should have
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
		Says:    "Calls that were cancelled leave nothing behind that keeps later ones out.",
		Source:  "gRPC; aws-encryption-provider#74",
		Suffers: "every request that a client gives up costs the plugin a part of itself, until it answers nobody.",
		run:     cancelledCallsEnd,
	}}
}

func answersInTime(ctx context.Context, s *session) error {
	slowest, method := time.Duration(0), ""
	for range 20 {
		var w *sealed
		for name, call := range map[string]func() error{
			"Encrypt": func() (err error) { w, err = s.wrap(ctx); return err },
			"Status":  func() error { _, err := s.status(ctx); return err },
		} {
			took, err := timed(call)
			if err != nil {
				return err
			}
			if took > slowest {
				slowest, method = took, name
			}
		}
		took, err := timed(func() error { return s.opens(ctx, w) })
		if err != nil {
			return err
		}
		if took > slowest {
			slowest, method = took, "Decrypt"
		}
	}
	if slowest > s.Timeout {
		return failed("%s took %s", method, slowest.Round(time.Millisecond))
	}
	return nil
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
	usual, err := timed(func() error { return s.roundTrips(ctx, 1) })
	if err != nil {
		return err
	}
	for begun := range cancelled / callers {
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() { s.cancelOne(ctx, usual*time.Duration(begun*callers+n)/cancelled) })
		}
		all.Wait()
	}
	// The last of them may take a moment to end.
	if late := eventually(ctx, s.patience(), func() bool { err = cmp.Or(s.opens(ctx, before), s.roundTrips(ctx, 4)); return err == nil }); late != nil {
		return s.bringBack(ctx, failed("after %d calls that were cancelled: %v", cancelled, err))
	}
	return nil
}

// cancelOne cancels a call a while after its request was sent. The whiles are spread over
// the time that calls take, so that some are cancelled at each point of the plugin's work.
func (s *session) cancelOne(ctx context.Context, after time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	sent := func() { time.AfterFunc(after, cancel) }
	_, err := s.client.Encrypt(whenSent(ctx, sent), &kmsapi.EncryptRequest{Plaintext: s.told.key(), Uid: s.told.uid()})
	if status.Code(err) != codes.Canceled {
		_ = s.told.heard("Encrypt", err) // it was faster, or failed; what it said is still looked at
	}
}
