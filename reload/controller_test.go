package reload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewContentIsSwappedInWhenItHasSettled(t *testing.T) {
	follow(t, func(f *follower) {
		require.Equal(t, Status{Hash: Hash([]byte(inUse)), LoadedAt: start}, f.controller.Status())
		changed := f.clock.Now()
		f.write("second")
		f.event()
		f.pass(DefaultQuiet - time.Millisecond)
		f.requireBuilt()
		f.pass(time.Millisecond)
		f.requireBuilt("second")
		require.Equal(t, "second", f.inUse())

		at := changed.Add(DefaultQuiet)
		status := Status{Hash: Hash([]byte("second")), LoadedAt: at, LastAttempt: at}
		require.Equal(t, status, f.controller.Status())
		require.Equal(t, []Status{status}, f.loaded)
		f.pass(3 * DefaultPoll)
		f.requireBuilt("second")
		require.Empty(t, f.failed)
		require.Empty(t, f.cleared)
	})
}

func TestHalfWrittenFileIsNeverTaken(t *testing.T) {
	chunks := []string{"kind: EncryptionConfiguration\n", "resources:\n", "- secrets\n", "# end\n"}
	follow(t, func(f *follower) {
		f.write("") // as truncation does
		f.event()
		f.pass(time.Second)
		for i := range chunks {
			f.write(strings.Join(chunks[:i+1], ""))
			f.event()
			f.pass(DefaultQuiet - time.Millisecond)
		}
		f.requireBuilt()
		f.pass(time.Millisecond)
		f.requireBuilt(strings.Join(chunks, ""))
		require.Empty(t, f.failed, "a file that was empty for a second is no failure")
	})
}

func TestHalfWrittenFileIsNeverTakenWithoutEvents(t *testing.T) {
	follow(t, func(f *follower) {
		f.write("half")
		f.pass(DefaultPoll)
		f.pass(time.Second - 10*time.Millisecond)
		f.write("half and half")
		f.pass(time.Second)
		f.requireBuilt()
		f.pass(10 * time.Millisecond)
		f.requireBuilt("half and half")
	})
}

func TestPollFindsWhatNoEventTold(t *testing.T) {
	follow(t, func(f *follower) {
		opened := f.notifier.opened
		f.write("second")
		f.pass(DefaultPoll + time.Second)
		f.requireBuilt("second")
		require.Greater(t, f.notifier.opened, opened, "the folders watched may have been the wrong ones")
		opened = f.notifier.opened
		f.pass(3 * DefaultPoll)
		require.Equal(t, opened, f.notifier.opened, "while nothing changes they are the right ones")
	})
}

// What happens between the end of the old events and the first new one has no
// event of its own.
func TestChangeWhileEventsAreAskedForAnewIsSeen(t *testing.T) {
	follow(t, func(f *follower) {
		require.NoError(t, os.Remove(f.path))
		f.notifier.during = func() { f.write("second") }
		f.pass(DefaultPoll + 2*time.Second)
		f.requireBuilt("second")
	})
}

func TestFileThatGoesForAMomentIsNoFailure(t *testing.T) {
	follow(t, func(f *follower) {
		require.NoError(t, os.Remove(f.path))
		f.event()
		f.pass(DefaultPoll - 10*time.Millisecond)
		f.write("second")
		f.event()
		f.pass(DefaultQuiet)
		f.requireBuilt("second")
		require.Empty(t, f.failed)
	})
}

func TestFileThatStaysAwayIsOneFailure(t *testing.T) {
	follow(t, func(f *follower) {
		require.NoError(t, os.Remove(f.path))
		f.event()
		f.pass(5 * DefaultPoll)
		require.Len(t, f.failed, 1)
		require.ErrorIs(t, f.failed[0].LastError, os.ErrNotExist)
		require.Empty(t, f.failed[0].FailedHash)
		require.Equal(t, Hash([]byte(inUse)), f.failed[0].Hash, "the one before stays")

		f.put(inUse)
		require.Len(t, f.cleared, 1)
		require.NoError(t, f.controller.Status().LastError)
		f.requireBuilt()
	})
}

func TestBadContentIsOneFailure(t *testing.T) {
	follow(t, func(f *follower) {
		f.refuses["bad"], f.refuses["worse"] = errBad, errors.New("line 2: bad")
		f.put("bad")
		failedAt := f.clock.Now()
		f.pass(5 * DefaultPoll)
		f.put("bad")
		f.requireBuilt("bad")
		require.Len(t, f.failed, 1)
		require.ErrorIs(t, f.failed[0].LastError, errBad)
		require.ErrorContains(t, f.failed[0].LastError, f.path)
		require.Equal(t, Hash([]byte("bad")), f.failed[0].FailedHash)
		require.Equal(t, failedAt, f.controller.Status().FailedSince)
		require.Equal(t, inUse, f.inUse())

		f.put("worse")
		f.requireBuilt("bad", "worse")
		require.Len(t, f.failed, 2)
		f.put(inUse)
		require.Len(t, f.cleared, 1)
		require.Equal(t, Status{Hash: Hash([]byte(inUse)), LoadedAt: start, LastAttempt: f.failed[1].LastAttempt}, f.controller.Status())
		f.put("good")
		f.requireBuilt("bad", "worse", "good")
		require.Empty(t, f.loaded[0].FailedHash)
	})
}

func TestTheSameFailureOfAnotherContentIsANewOne(t *testing.T) {
	follow(t, func(f *follower) {
		f.refuses["bad"], f.refuses["as bad"] = errBad, errBad
		f.put("bad")
		f.put("as bad")
		require.Len(t, f.failed, 2)
		require.Equal(t, Hash([]byte("as bad")), f.controller.Status().FailedHash)
		require.True(t, f.failed[1].FailedSince.After(f.failed[0].FailedSince))
	})
}

func TestContentThatMaySucceedLaterIsTriedAtEachPoll(t *testing.T) {
	follow(t, func(f *follower) {
		away := retry{errors.New("plugin is away")}
		f.refuses["second"] = fmt.Errorf("kms: %w", away)
		f.put("second")
		f.pass(3 * DefaultPoll)
		f.requireBuilt("second", "second", "second", "second")
		require.Len(t, f.failed, 1, "the same failure is reported once")
		require.True(t, f.failed[0].Retrying)
		require.Equal(t, f.failed[0].FailedSince, f.controller.Status().FailedSince)

		delete(f.refuses, "second")
		f.pass(DefaultPoll)
		require.Len(t, f.loaded, 1)
		require.NoError(t, f.controller.Status().LastError)
		built := len(f.built)
		f.pass(3 * DefaultPoll)
		require.Len(t, f.built, built)
	})
}

// A plugin may word its trouble anew each time, as with the number of a request.
func TestTheSameFailureInOtherWordsIsToldOnceAMinuteAndIsOneFailure(t *testing.T) {
	follow(t, func(f *follower) {
		n := 0
		f.during = func(context.Context) {
			n++
			f.refuses["second"] = retry{fmt.Errorf("request %d: plugin is away", n)}
		}
		f.put("second")
		failed := f.controller.Status()
		f.pass(time.Minute - DefaultPoll)
		require.Empty(t, f.reworded)
		require.ErrorContains(t, f.controller.Status().LastError, fmt.Sprintf("request %d:", n), "what is known is the latest")

		f.pass(4*time.Minute + DefaultPoll)
		require.Greater(t, n, 25)
		require.Len(t, f.failed, 1)
		require.InDelta(t, 5, len(f.reworded), 1)
		for _, s := range append(f.reworded, f.controller.Status()) {
			require.Equal(t, failed.FailedSince, s.FailedSince)
			require.Equal(t, failed.FailedHash, s.FailedHash)
			require.True(t, s.Retrying)
		}
	})
}

func TestAnotherCauseIsToldWhenAMinuteHasPassed(t *testing.T) {
	follow(t, func(f *follower) {
		f.refuses["second"] = retry{errors.New("plugin is away")}
		f.put("second")
		f.pass(10 * time.Minute)
		require.Empty(t, f.reworded, "the same words are no news")

		f.refuses["second"] = retry{errors.New("plugin is denied")}
		f.pass(DefaultPoll)
		require.Len(t, f.reworded, 1)
		require.ErrorContains(t, f.reworded[0].LastError, "plugin is denied")
		require.Equal(t, f.failed[0].FailedSince, f.reworded[0].FailedSince)

		f.refuses["second"] = errors.New("not this file")
		f.pass(DefaultPoll)
		require.Len(t, f.failed, 2, "that it is not tried again is another failure")
		require.False(t, f.failed[1].Retrying)
	})
}

func TestWithoutEventsThePollGoesOn(t *testing.T) {
	follow(t, func(f *follower) {
		f.notifier.fail(errors.New("inotify is exhausted"))
		f.lose()
		f.pass(3 * DefaultPoll)
		require.Equal(t, 1, strings.Count(f.log.String(), "inotify is exhausted"), "logged once")
		require.EqualError(t, f.controller.Status().WatchError, "inotify is exhausted")
		f.write("second")
		f.pass(DefaultPoll + time.Second)
		f.requireBuilt("second")
		require.Error(t, f.loaded[0].WatchError)

		f.notifier.fail(nil)
		f.pass(DefaultPoll)
		require.NoError(t, f.controller.Status().WatchError)
		require.Equal(t, 1, strings.Count(f.log.String(), "are back"))
		f.put("third")
		f.requireBuilt("second", "third")
		require.Empty(t, f.failed, "missing events are no failed reload")
	})
}

func TestEventsThatEndAreAskedForAgain(t *testing.T) {
	follow(t, func(f *follower) {
		opened := f.notifier.opened
		f.write("second")
		f.lose()
		require.Equal(t, opened+1, f.notifier.opened)
		f.pass(DefaultQuiet)
		f.requireBuilt("second") // that they ended is an event too
		f.put("third")
		f.requireBuilt("second", "third")
	})
}

func TestNothingOfTheContentIsLogged(t *testing.T) {
	follow(t, func(f *follower) {
		f.refuses["secret bad"] = retry{errBad}
		f.put("secret good")
		f.put("secret bad")
		f.pass(2 * DefaultPoll)
		f.notifier.fail(errors.New("exhausted"))
		f.lose()
		require.NotContains(t, f.log.String(), "secret")
		require.NotContains(t, fmt.Sprintf("%+v", f.controller.Status()), "secret")
	})
}

func TestNewControllerChecksItsConfig(t *testing.T) {
	set, _ := newSet(constant{})
	defer set.Close()
	build := func(context.Context, []byte) (Generation, error) { return constant{}, nil }
	whole := Config[Generation]{Path: "config", Hash: "sha256:0", Build: build, Set: set}

	c, err := NewController(whole)
	require.NoError(t, err)
	require.Equal(t, DefaultPoll, c.config.Poll)
	require.Equal(t, DefaultQuiet, c.config.Quiet)
	require.True(t, filepath.IsAbs(c.config.Path), "the process may change its folder")
	for name, spoil := range map[string]func(*Config[Generation]){
		"no path":             func(c *Config[Generation]) { c.Path = "" },
		"no hash":             func(c *Config[Generation]) { c.Hash = "" },
		"no build":            func(c *Config[Generation]) { c.Build = nil },
		"no set":              func(c *Config[Generation]) { c.Set = nil },
		"quiet above poll":    func(c *Config[Generation]) { c.Quiet, c.Poll = 2, 1 },
		"quiet below nothing": func(c *Config[Generation]) { c.Quiet = -1 },
		"poll below nothing":  func(c *Config[Generation]) { c.Poll = -1 },
	} {
		config := whole
		spoil(&config)
		_, err := NewController(config)
		require.ErrorContains(t, err, "reload: ", name)
	}
}
