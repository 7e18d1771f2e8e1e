package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Run runs checks against a plugin, one after the other, and waits for the last. The
// error is that there was nothing to run them against, or a mistake in what was asked for.
// When ctx ends, what is broken is mended, what was ended is started, and what was not run is
// unknown.
func Run(ctx context.Context, target Target, options Options) (*Report, error) {
	checks, err := chosen(options.Only)
	if err != nil {
		return nil, err
	}
	s, err := begin(ctx, target, options.withDefaults())
	if err != nil {
		return nil, err
	}
	defer s.close()
	report := &Report{Endpoint: target.Endpoint}
	for _, check := range checks {
		result := s.try(ctx, check)
		s.Each(result)
		report.Results = append(report.Results, result)
	}
	return report, nil
}

func chosen(ids []string) ([]Check, error) {
	all := Checks()
	for _, id := range ids {
		if !slices.ContainsFunc(all, func(c Check) bool { return c.ID == id }) {
			return nil, fmt.Errorf("no check %q: there are %s", id, idsOf(all))
		}
	}
	if len(ids) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(c Check) bool { return !slices.Contains(ids, c.ID) }), nil
}

// Quick are the IDs of checks of what an apiserver refuses, cannot read again or lays open, that are
// safe on a plugin in use: all together they make fewer than a hundred calls, one at a time, and need
// nothing but the socket. A key_id in the clear, or one that Decrypt does not look at, harms no data, and
// is what plugins of clouds have.
func Quick() []string {
	return []string{"status-version", "key-id-form", "round-trip", "ciphertext-hides", "ciphertext-size", "ciphertext-fresh", "annotations"}
}

func idsOf(checks []Check) string {
	var ids []string
	for _, c := range checks {
		ids = append(ids, c.ID)
	}
	return strings.Join(ids, ", ")
}

// begin connects to the plugin, which has to be there.
func begin(ctx context.Context, target Target, options Options) (*session, error) {
	if (target.Break == nil) != (target.Mend == nil) {
		return nil, errors.New("break and mend go together: what is broken has to be mended")
	}
	if err := target.Breaks.check(); err != nil {
		return nil, err
	}
	address, err := addressOf(target.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", target.Endpoint, err)
	}
	s := &session{Target: target, Options: options, address: address, told: newTold()}
	if err := s.dial(ctx); err != nil {
		return nil, fmt.Errorf("endpoint %q: %w: %s", target.Endpoint, err, remedy(err))
	}
	s.client, err = newClient(address)
	return s, err
}

// remedy is what to do about a socket that cannot be connected to.
func remedy(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "start the plugin, or correct the path"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: start the plugin"
	case errors.Is(err, fs.ErrPermission):
		return "run this as the user of the apiserver"
	}
	return "look whether the plugin runs"
}

// dial reports whether the plugin accepts a connection.
func (s *session) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// A failure is what a check found of the plugin. Any other error of a check says why it
// could not be carried out.
type failure struct{ seen string }

func (f failure) Error() string { return f.seen }

func failed(format string, args ...any) error { return failure{fmt.Sprintf(format, args...)} }

// untried is why there was nothing to be looked at, though all that a check needs was there.
type untried struct{ why string }

func (u untried) Error() string { return u.why }

// try runs a check that has all that it needs.
func (s *session) try(ctx context.Context, c Check) Result {
	r := Result{Check: c}
	for _, need := range c.Needs {
		if !s.has(need) {
			r.Missing = append(r.Missing, need)
		}
	}
	if r.Missing != nil {
		r.Outcome, r.Why = NotTried, fmt.Sprintf("it needs %s", joined(r.Missing))
		return r
	}
	start := time.Now()
	var err error
	if !c.afterwards {
		err = s.ready(ctx)
	}
	if err == nil {
		err = c.run(ctx, s)
	}
	r.Took = time.Since(start)
	var seen failure
	var skipped untried
	switch {
	case err == nil:
		r.Outcome = Passed
	case errors.As(err, &seen) && (c.afterwards || ctx.Err() == nil): // what fails for an interrupt is no fault of the plugin's
		r.Outcome, r.Why = Failed, s.told.scrub(err.Error())
	case errors.As(err, &skipped) && ctx.Err() == nil:
		r.Outcome, r.Why = NotTried, s.told.scrub(err.Error())
	default:
		r.Outcome, r.Why = Unknown, s.told.scrub(err.Error())
	}
	return r
}

func joined(needs []Need) string {
	var all []string
	for _, n := range needs {
		all = append(all, string(n))
	}
	return strings.Join(all, " and ")
}

// ready waits for a plugin that a check has shot down, once: a supervisor may start it.
func (s *session) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("not run: %w", err)
	}
	err := s.dial(ctx)
	if err == nil {
		s.gone = false
		return s.answers(ctx)
	}
	if s.gone {
		return lost(err)
	}
	back, waited := s.within(ctx, func() bool {
		err = s.dial(ctx)
		return err == nil
	})
	if waited != nil {
		return waited
	}
	s.gone = !back
	return lost(err)
}

// answers waits for any answer at all to a call, and not for long if there was none before.
func (s *session) answers(ctx context.Context) error {
	patience := s.patience()
	if s.silent {
		patience = s.Timeout / 10
	}
	took, err := timed(func() error { return s.statusWithin(ctx, patience) })
	s.silent = err != nil && took >= patience
	if s.silent {
		if gone := s.dial(ctx); gone != nil {
			return lost(gone)
		}
		return fmt.Errorf("the plugin accepts connections, and has not answered Status within %s: %w", patience, err)
	}
	return nil
}

func lost(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the plugin is not there any more: %w", err)
}
