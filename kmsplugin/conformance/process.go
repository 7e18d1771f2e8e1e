package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	kmsapi "k8s.io/kms/apis/v2"
)

func processChecks() []Check {
	return []Check{{
		ID:      "sigterm-drains",
		Says:    "On SIGTERM the plugin takes no more connections and finishes the calls that are under way.",
		Source:  "the end of each rolling update of a plugin",
		Suffers: "requests fail whenever the plugin is updated.",
		Needs:   []Need{NeedTerminate, NeedRestart},
		run:     sigtermDrains,
	}, {
		ID:      "stale-socket-replaced",
		Says:    "The socket file that a killed plugin leaves does not keep the next one from serving.",
		Source:  "aws-encryption-provider#74; k8s.io/kms/pkg/service leaves it there",
		Suffers: "after a crash of the plugin or of the node it does not come up until somebody removes the file.",
		Needs:   []Need{NeedKill, NeedRestart},
		run:     staleSocketReplaced,
	}, {
		ID:      "errors-hold-no-key",
		Says:    "No error of the whole run holds a key that was to be encrypted.",
		Source:  "the text of an error is logged on both sides",
		Suffers: "its logs hold data keys in the clear.",
		run:     errorsHoldNoKey, afterwards: true,
	}, {
		ID:      "log-holds-no-key",
		Says:    "No line that the plugin logged in the whole run holds a key that was to be encrypted.",
		Source:  "many read a log; vault-kubernetes-kms#85, where it was a token, for which this does not look",
		Suffers: "whoever reads the plugin's log reads what is in etcd.",
		Needs:   []Need{NeedLog},
		run:     logHoldsNoKey, afterwards: true,
	}}
}

// sigtermDrains has a call under way, of which the plugin knows the beginning, and
// finishes it when nobody else is let in any more, or when the plugin has told the connection of
// the call that it leaves: who answers on new ones then is another plugin, to which the same
// socket was passed on.
func sigtermDrains(ctx context.Context, s *session) error {
	err := s.terminateInACall(ctx)
	return errors.Join(err, s.restarted(ctx))
}

func (s *session) terminateInACall(ctx context.Context) error {
	_, unwell := s.keyID(ctx)
	opened := time.Now()
	wire, err := s.openWire(ctx)
	if err != nil {
		return err
	}
	defer wire.close()
	call, err := wire.begin(ctx, "Encrypt", &kmsapi.EncryptRequest{Plaintext: s.told.key(), Uid: s.told.uid()}, 0)
	if err != nil {
		return fmt.Errorf("a call by hand: %w", err)
	}
	defer call.cancel()
	if err := s.Terminate(ctx); err != nil {
		return fmt.Errorf("terminate: %w", err)
	}
	closed, err := s.within(ctx, leaving{session: s, wire: wire, opened: opened}.seen(ctx))
	if err != nil {
		return err
	}
	if !closed {
		return failed("%s after SIGTERM it still takes connections", s.Interval)
	}
	call.finish()
	switch err := call.wait(s.patience()); {
	case err != nil && unwell != nil: // such a call fails at any time
		return unwell
	case err != nil:
		return failed("a call that was under way at SIGTERM was cut off: %v", err)
	}
	return nil
}

// restart is also for somebody who has interrupted this: what was ended is started.
func (s *session) restart(ctx context.Context) error { return s.Restart(context.WithoutCancel(ctx)) }

// restarted brings back a plugin that was ended.
func (s *session) restarted(ctx context.Context) error {
	if err := s.restart(ctx); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	return s.becomesWell(ctx)
}

// eventually waits for what is done without a call, by the system's own time.
func eventually(ctx context.Context, most time.Duration, done func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	start := time.Now()
	for !done() {
		if time.Since(start) >= most {
			return fmt.Errorf("not after %s", most)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

func errorsHoldNoKey(_ context.Context, s *session) error {
	given, errs, leak := s.told.count()
	switch {
	case leak != "":
		return failed("an error of %s holds the key that it was given", leak)
	case given == 0 || errs == 0:
		return errors.New("no key was given, or no call failed, so there was nothing to be looked at: run the other checks with it")
	}
	return nil
}

func logHoldsNoKey(_ context.Context, s *session) error {
	given, _, _ := s.told.count()
	log, err := s.Log()
	switch {
	case given == 0:
		return errors.New("no key was given in this run, so none can be in the log: run the other checks with it")
	case err != nil:
		return fmt.Errorf("log: %w", err)
	case len(log) == 0:
		return errors.New("nothing was logged, so there is nothing to be looked at: is it the plugin's log?")
	case s.told.isIn(log):
		return failed("%d bytes of log hold a key that was to be encrypted", len(log))
	case !s.told.isSpokenOf(log) && !bytes.Contains(log, []byte(s.address)):
		return errors.New("whose log it is cannot be seen: it has neither the uid of a call, nor a key_id that Status named, nor the path of the socket: " +
			"have the plugin log its calls, or restart it in the run if it tells at its start where it listens")
	}
	return nil
}
