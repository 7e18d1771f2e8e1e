package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	kmsapi "k8s.io/kms/apis/v2"
)

const (
	piled      = 256 // calls that are given up while there is trouble
	askedAgain = 10  // calls of Status after the trouble has shown
)

func troubleChecks() []Check {
	needs := []Need{NeedBreak, NeedMend}
	return []Check{{
		ID:      "trouble-shows",
		Says:    "Status tells within the interval that the KMS, the credentials or the key are lost, and for as long as they are.",
		Source:  "KEP-3299: healthz; plugins that always answer ok",
		Suffers: "it is ready and well until the moment it has to write, and nobody is told.",
		Needs:   needs,
		run:     troubleShows,
	}, {
		ID:      "trouble-is-an-error",
		Says:    "Status tells of it by a gRPC error, and not by the text of healthz alone.",
		Source:  "kubernetes#138950",
		Suffers: "it takes the answer for a sign of life, and goes on writing under a data key whose key is lost, for ever.",
		Needs:   needs,
		run:     troubleIsAnError,
	}, {
		ID:      "trouble-class",
		Says:    "The errors of Status, Encrypt and Decrypt come while an apiserver waits, and have a gRPC code that says of what kind the trouble is: not OK, Unknown, Internal or DeadlineExceeded; and that of what was taken away, where the run was told what.",
		Source:  "gRPC's status codes; kubernetes#66844: useless errors",
		Suffers: "whoever looks after it cannot tell a KMS that is away from a right that is lost, or from data that is damaged, nor it what is worth trying again.",
		Needs:   needs,
		run:     troubleClass,
	}, {
		ID:      "deadline-kept",
		Says:    "While there is trouble each call ends at its deadline, leaves its place to others, and ends no other.",
		Source:  "gRPC; KEP-3299",
		Suffers: "calls pile up in the plugin as long as the trouble lasts, which dies of them or never stops.",
		Needs:   needs,
		run:     deadlineKept,
	}, {
		ID:      "trouble-ends",
		Says:    "When the trouble is over, Status and Encrypt are well within the interval, under the same key_id, without a restart, and all opens that was encrypted before it and in it.",
		Source:  "vault-kubernetes-kms#304, trousseau#272; vault-kube-kms has to be restarted for a new credential",
		Suffers: "an outage of minutes lasts until somebody is woken, or for ever for some of the data.",
		Needs:   needs,
		run:     troubleEnds,
	}}
}

// A trouble is what was seen while the KMS was broken. It is made once, for all checks.
type trouble struct {
	err    error     // why nothing is known
	keyID  string    // before it
	well   *sealed   // made before it
	kept   []*sealed // that have to open after it
	shown  bool      // by Status, in any way
	over   bool      // as Status said, after it had shown and while it lasted
	text   string    // healthz in quotes, where an answer told
	errs   []error   // of Status, Encrypt and Decrypt, the plugin's own
	nobody error     // how the last call ended that the plugin did not answer
	fine   bool      // Status said ok, when it was asked last
	hung   []string  // what did not end, or ended more than itself
	crowd  error     // why it is not known whether calls leave their places
	mended error     // why it did not end
}

func (s *session) trouble(ctx context.Context) *trouble {
	if s.troubled == nil {
		s.troubled = &trouble{}
		s.troubled.err = s.troubled.happen(ctx, s)
	}
	return s.troubled
}

func (t *trouble) happen(ctx context.Context, s *session) (err error) {
	if t.keyID, err = s.keyID(ctx); err != nil {
		return err
	}
	if t.well, err = s.wrap(ctx); err != nil {
		return err
	}
	t.kept = append(s.formerThatOpen(ctx), t.well)
	err = s.Break(ctx)
	if err != nil {
		err = fmt.Errorf("break: %w", err)
	} else {
		err = t.look(ctx, s)
	}
	// What is broken is mended, also for somebody who has interrupted this.
	if failed := s.Mend(context.WithoutCancel(ctx)); failed != nil {
		return errors.Join(err, fmt.Errorf("mend: %w", failed))
	}
	if err != nil {
		return err
	}
	t.mended = t.ends(ctx, s)
	if t.mended != nil && s.Restart != nil { // for the checks that follow
		if err := s.restart(ctx); err != nil {
			return fmt.Errorf("restart, as the trouble did not end: %w", err)
		}
		return s.becomesWell(ctx)
	}
	return nil
}

// look sees what the plugin says while there is trouble.
func (t *trouble) look(ctx context.Context, s *session) error {
	_, err := s.within(ctx, func() bool {
		t.shown = t.tells(ctx, s)
		return t.shown
	})
	if err != nil {
		return err
	}
	t.call(ctx, s, func(ctx context.Context) error {
		w, err := s.wrap(ctx)
		if err == nil {
			t.kept = append(t.kept, w)
		}
		return err
	})
	t.call(ctx, s, func(ctx context.Context) error { return s.opens(ctx, t.well) })
	if err := t.lookForCallsThatHang(ctx, s); err != nil || !t.shown {
		return err
	}
	return t.goesOn(ctx, s)
}

// call makes a call, reports whether it is an answer how it ended, and notes an error that is. One
// that the client makes itself, as the plugin is not there, tells of no trouble.
func (t *trouble) call(ctx context.Context, s *session, do func(context.Context) error) (answered bool) {
	if err := s.dial(ctx); err != nil {
		t.nobody = err
		return false
	}
	// As an apiserver does, which hears nothing of what is said later.
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	var seen watch
	switch err := do(watching(ctx, &seen)); {
	case err == nil:
		return true
	case seen.isThePlugins(err):
		t.errs = append(t.errs, err)
		return true
	default:
		t.nobody = err
		return false
	}
}

// tells reports whether Status tells of trouble.
func (t *trouble) tells(ctx context.Context, s *session) bool {
	var answer *kmsapi.StatusResponse
	answered := t.call(ctx, s, func(ctx context.Context) (err error) { answer, err = s.status(ctx); return err })
	t.fine = answer.GetHealthz() == "ok"
	if answer != nil && !t.fine {
		t.text = fmt.Sprintf("%.300q", answer.Healthz)
	}
	return answered && !t.fine
}

// goesOn asks again after all those calls, and for some seconds of the default interval: one
// error proves little of a plugin that goes back to ok, or to a text, while there is trouble.
func (t *trouble) goesOn(ctx context.Context, s *session) error {
	began, start, lasts := time.Now(), s.Clock.Now(), s.Interval/12
	for range askedAgain {
		t.tells(ctx, s)
		t.over = t.over || t.fine
		if s.Clock.Since(start) >= lasts || time.Since(began) >= s.patience() {
			break // it is slow
		}
		if err := s.wait(ctx, lasts/askedAgain); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (t *trouble) lookForCallsThatHang(ctx context.Context, s *session) error {
	for _, call := range []struct {
		method  string
		request proto.Message
	}{
		{"Status", &kmsapi.StatusRequest{}},
		{"Encrypt", &kmsapi.EncryptRequest{Plaintext: s.told.key(), Uid: s.told.uid()}},
		{"Decrypt", &kmsapi.DecryptRequest{Ciphertext: t.well.Ciphertext, KeyId: t.well.KeyId, Annotations: t.well.Annotations, Uid: s.told.uid()}},
	} {
		if err := t.callByHand(ctx, s, call.method, call.request); err != nil {
			return fmt.Errorf("%s: %w", call.method, err)
		}
	}
	return t.lookForAPile(ctx, s)
}

// callByHand sees how a call ends, on a connection of its own, and what ends with it.
func (t *trouble) callByHand(ctx context.Context, s *session, method string, request proto.Message) error {
	// A supervisor may be about to start the plugin that the call before has ended.
	there, err := s.within(ctx, func() bool { return s.dial(ctx) == nil })
	if err != nil {
		return err
	}
	if !there {
		t.hung = append(t.hung, fmt.Sprintf("nobody listens any more, and %s is not called", method))
		return nil
	}
	wire, err := s.openWire(ctx)
	if err != nil {
		return err
	}
	defer wire.close()
	pending, err := wire.begin(ctx, method, request, s.Timeout/3)
	if err != nil {
		return err
	}
	pending.finish()
	switch err := pending.wait(s.Timeout); {
	case errors.Is(err, errStillRunning):
		t.hung = append(t.hung, fmt.Sprintf("%s goes on %s after its deadline", method, s.Timeout-s.Timeout/3))
	case errors.Is(err, errCut):
		t.hung = append(t.hung, fmt.Sprintf("%s ends the connection, as a process does that ends: %v", method, err))
	case err != nil:
		_ = s.told.heard(method, err) // it is looked at as any other
	}
	return nil
}

// lookForAPile sees whether calls whose deadline has passed keep others out: a server may
// end the call for the caller's eyes alone. It can be seen where Status is answered at all.
func (t *trouble) lookForAPile(ctx context.Context, s *session) error {
	if err := s.dial(ctx); err != nil {
		t.crowd = t.unanswered(err)
		return ctx.Err()
	}
	took, err := timed(func() error { return s.statusWithin(ctx, s.patience()) })
	if took >= s.patience() {
		t.crowd = fmt.Errorf("whether calls whose deadline has passed leave their places to others is not known: there is no call that is answered while there is trouble: %w", err)
		return ctx.Err()
	}
	usual := min(took+s.Timeout, s.patience())
	var all sync.WaitGroup
	for range piled {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, s.Timeout/10)
			defer cancel()
			_, _ = s.decrypt(ctx, t.well.EncryptResponse) // however it ends
		})
	}
	all.Wait()
	if after, _ := timed(func() error { return s.statusWithin(ctx, usual) }); after >= usual {
		t.hung = append(t.hung, fmt.Sprintf("Status is not answered within %s after %d calls of Decrypt whose deadline has passed, and was within %s before", usual.Round(time.Millisecond), piled, took.Round(time.Millisecond)))
	}
	return ctx.Err()
}

// statusWithin asks for the state, and waits no longer.
func (s *session) statusWithin(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := s.status(ctx)
	return err
}

// ends is why the trouble has not ended, though it was mended. A call that fails may be well later; a key_id
// that is wrong was named.
func (t *trouble) ends(ctx context.Context, s *session) error {
	if err := s.becomesWell(ctx); err != nil {
		return err
	}
	var last error
	var wrong failure
	_, err := s.within(ctx, func() bool {
		last = t.isOver(ctx, s)
		return last == nil || errors.As(last, &wrong) || errors.Is(last, errMayBeRotated)
	})
	return cmp.Or(err, last)
}

// isOver is an error of what the trouble has left behind.
func (t *trouble) isOver(ctx context.Context, s *session) error {
	if err := s.stillNames(ctx, t.keyID, "the trouble"); err != nil {
		return err
	}
	for _, w := range t.kept {
		if err := s.opens(ctx, w); err != nil {
			return err
		}
	}
	if err := s.roundTrips(ctx, 1); err != nil {
		return err
	}
	return s.agrees(ctx)
}

func troubleShows(ctx context.Context, s *session) error {
	t := s.trouble(ctx)
	switch {
	case t.err != nil:
		return t.err
	case t.over:
		return failed("Status told of the trouble, and then said ok while it lasted")
	case t.shown:
		return nil
	case !t.fine:
		return t.unanswered(t.nobody)
	}
	if len(t.errs) > 0 {
		return failed("Status says ok for %s, and calls fail: %v", s.Interval, t.errs[0])
	}
	return failed("for %s Status says ok, and Encrypt answers: the plugin does not notice, or break takes nothing away from it", s.Interval)
}

func troubleIsAnError(ctx context.Context, s *session) error {
	t := s.trouble(ctx)
	switch {
	case t.err != nil:
		return t.err
	case !t.shown:
		return errors.New("the trouble did not show in Status: see trouble-shows")
	case t.text != "":
		return failed("Status answers, with healthz %s", t.text)
	}
	return nil
}

func troubleClass(ctx context.Context, s *session) error {
	t := s.trouble(ctx)
	if err := cmp.Or(t.err, t.unseen()); err != nil {
		return err
	}
	for _, err := range t.errs {
		if wrong := s.Breaks.told(status.Code(err)); wrong != nil {
			return failed("%v: %v", err, wrong)
		}
	}
	switch {
	case t.nobody != nil:
		return t.unanswered(t.nobody)
	case len(t.errs) == 0:
		return errors.New("no call failed while Status told of trouble")
	}
	return nil
}

// unanswered is that the plugin did not answer a call, and the client alone said how it ended.
func (t *trouble) unanswered(err error) error {
	return fmt.Errorf("a call was not answered by the plugin while there was trouble, so that what it says then is not known: if break ends the plugin, have it take the KMS away: %w", err)
}

func deadlineKept(ctx context.Context, s *session) error {
	t := s.trouble(ctx)
	if t.err == nil && len(t.hung) > 0 {
		return failed("%s", strings.Join(t.hung, "; "))
	}
	return cmp.Or(t.err, t.unseen(), t.crowd)
}

func troubleEnds(ctx context.Context, s *session) error {
	t := s.trouble(ctx)
	switch {
	case errors.Is(t.mended, errMayBeRotated):
		return t.mended
	case t.mended != nil:
		return failed("%v", t.mended)
	}
	return cmp.Or(t.err, t.unseen())
}

// unseen is that no call had any trouble: nobody knows then whether there was some.
func (t *trouble) unseen() error {
	if t.shown || len(t.errs) > 0 {
		return nil
	}
	return errors.New("no call failed while there was trouble: see trouble-shows")
}
