package reload

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestACorrectedFileTakesEffectWhileTheOneBeforeIsStillBuilt(t *testing.T) {
	follow(t, func(f *follower) {
		f.during = abandoned
		f.put("waits for its plugin")
		began := f.clock.Now()
		status := Status{Hash: Hash([]byte(inUse)), LoadedAt: start, LastAttempt: began, Building: Hash([]byte("waits for its plugin"))}
		require.Equal(t, status, f.controller.Status())
		f.pass(3 * DefaultPoll)
		f.put("waits for its plugin") // written again as it is
		f.requireBuilt()
		require.Equal(t, status, f.controller.Status(), "it is built once")
		require.Equal(t, inUse, f.inUse(), "what is in use stays in use")

		f.during = nil
		f.put("corrected")
		f.requireBuilt("waits for its plugin", "corrected")
		require.Equal(t, "corrected", f.inUse())
		require.EqualValues(t, 1, f.made["waits for its plugin"].closed.Load(), "it was built too late")
		require.Zero(t, f.made["corrected"].closed.Load())
		now := f.clock.Now()
		require.Equal(t, Status{Hash: Hash([]byte("corrected")), LoadedAt: now, LastAttempt: now}, f.controller.Status())
		require.Empty(t, f.failed)
		require.Empty(t, f.cleared)
	})
}

func TestABuildingThatIsAbandonedIsNoFailure(t *testing.T) {
	follow(t, func(f *follower) {
		f.during = abandoned
		f.refuses["waits"] = retry{errors.New("context canceled while it waited")}
		f.put("waits")
		f.during = nil
		f.put("corrected")
		f.requireBuilt("waits", "corrected")
		require.Empty(t, f.failed)
		require.Len(t, f.loaded, 1)
	})
}

func TestTheFilePutBackEndsTheBuildingOfAnother(t *testing.T) {
	follow(t, func(f *follower) {
		f.during = abandoned
		f.put("waits for its plugin")
		began := f.clock.Now()
		f.put(inUse)
		status := Status{Hash: Hash([]byte(inUse)), LoadedAt: start, LastAttempt: began}
		require.Equal(t, status, f.controller.Status())
		require.Equal(t, []Status{status}, f.cleared, "what it was tried with can be let go")
		require.EqualValues(t, 1, f.made["waits for its plugin"].closed.Load())
		f.pass(3 * DefaultPoll)
		f.requireBuilt("waits for its plugin")
		require.Equal(t, inUse, f.inUse())
		require.Len(t, f.cleared, 1)
		require.Empty(t, f.failed)
	})
}

func TestAFileThatCannotBeReadEndsTheBuildingOfWhatItHeld(t *testing.T) {
	follow(t, func(f *follower) {
		f.during = abandoned
		f.put("waits")
		require.NoError(t, os.Remove(f.path))
		f.event()
		f.pass(DefaultPoll - 10*time.Millisecond)
		f.requireBuilt()
		require.Equal(t, Hash([]byte("waits")), f.controller.Status().Building, "it may be there again in a moment")
		f.pass(10 * time.Millisecond)
		f.requireBuilt("waits")
		require.EqualValues(t, 1, f.made["waits"].closed.Load())
		require.Len(t, f.failed, 1)
		require.ErrorIs(t, f.failed[0].LastError, os.ErrNotExist)
		require.Empty(t, f.failed[0].Building)
		require.Equal(t, inUse, f.inUse())

		f.during = nil
		f.put("waits")
		require.Equal(t, "waits", f.inUse(), "its end was not its own failure")
		require.NoError(t, f.controller.Status().LastError)
	})
}

// Whoever was told before may hold what was tried since.
func TestAFileThatCannotBeReadAgainAfterAContentThatWaitedIsAnotherFailure(t *testing.T) {
	follow(t, func(f *follower) {
		gone := func() {
			require.NoError(t, os.Remove(f.path))
			f.event()
			f.pass(DefaultPoll)
		}
		gone()
		require.Len(t, f.failed, 1)
		f.refuses["waits"] = retry{errors.New("context canceled while it waited")}
		f.during = abandoned
		f.put("waits")
		require.NotEmpty(t, f.controller.Status().Building)

		gone()
		f.requireBuilt("waits")
		require.Len(t, f.failed, 2)
		require.Equal(t, f.clock.Now(), f.failed[1].FailedSince)
		require.Empty(t, f.failed[1].Building)
		f.pass(3 * DefaultPoll)
		require.Len(t, f.failed, 2)
		require.Empty(t, f.reworded)
	})
}

// Whoever builds may hold what a try was made of for the next: it has to come.
func TestARefusedContentThatIsThereAgainInsteadOfOneThatWaitsIsBuiltAgain(t *testing.T) {
	follow(t, func(f *follower) {
		f.refuses["bad"] = errBad
		f.put("bad")
		refused := f.controller.Status()
		f.during = abandoned
		f.put("waits")
		f.during = nil
		f.put("bad")
		f.requireBuilt("bad", "waits", "bad")
		again := f.controller.Status()
		require.Equal(t, f.clock.Now(), again.LastAttempt)
		again.LastAttempt = refused.LastAttempt
		require.Equal(t, refused, again)
		require.Len(t, f.failed, 1, "and that is no news")
		f.pass(3 * DefaultPoll)
		f.requireBuilt("bad", "waits", "bad")
	})
}

// That nothing goes on is what the end of the bubble shows.
func TestRunThatEndsWhileSomethingIsBuiltLeavesNothingBehind(t *testing.T) {
	for name, refusal := range map[string]error{
		"built":     nil,
		"not built": context.Canceled,
	} {
		t.Run(name, func(t *testing.T) {
			var ended *follower
			follow(t, func(f *follower) {
				ended = f
				f.during, f.refuses["second"] = abandoned, refusal
				f.put("second")
				f.requireBuilt()
			})
			ended.requireBuilt("second")
			require.Equal(t, inUse, ended.inUse())
			require.Empty(t, ended.failed)
			require.Empty(t, ended.loaded)
			require.Empty(t, ended.cleared)
			require.Empty(t, ended.controller.Status().Building)
			if refusal == nil {
				require.EqualValues(t, 1, ended.made["second"].closed.Load())
			}
		})
	}
}

// Who reads the status is to see what is wrong, and not every few seconds that
// it might soon not be.
func TestAContentThatIsTriedAgainStaysFailedMeanwhile(t *testing.T) {
	follow(t, func(f *follower) {
		f.refuses["second"] = retry{errors.New("plugin is away")}
		f.put("second")
		failed := f.controller.Status()
		require.Empty(t, failed.Building)

		f.during = abandoned
		f.pass(2 * DefaultPoll)
		again := f.controller.Status()
		require.Equal(t, failed.FailedHash, again.Building)
		require.Equal(t, failed.LastError, again.LastError)
		require.Equal(t, failed.FailedSince, again.FailedSince)
		require.True(t, again.Retrying)
		require.True(t, again.LastAttempt.After(failed.LastAttempt))
		f.requireBuilt("second")

		f.during = nil
		f.put("third")
		require.Equal(t, "third", f.inUse())
		require.NoError(t, f.controller.Status().LastError)
	})
}

// Two contents change places while each waits: only the one that the file holds
// is built.
func TestOnlyTheLatestContentIsTakenIntoUse(t *testing.T) {
	follow(t, func(f *follower) {
		f.during = abandoned
		for range 10 {
			f.put("one")
			f.put("two")
		}
		f.during = nil
		f.put("three")
		require.Len(t, f.built, 21)
		require.Len(t, f.loaded, 1)
		require.Equal(t, "three", f.inUse())
		require.EqualValues(t, 1, f.made["one"].closed.Load())
		require.EqualValues(t, 1, f.made["two"].closed.Load())
	})
}

func TestAContentThatIsBuiltWhenTheSetWasClosedIsNotInUse(t *testing.T) {
	follow(t, func(f *follower) {
		f.controller.config.Set.Close()
		f.put("too late")
		require.EqualValues(t, 1, f.made["too late"].closed.Load())
		require.Empty(t, f.loaded)
		s := f.controller.Status()
		require.Equal(t, Hash([]byte(inUse)), s.Hash)
		require.ErrorIs(t, s.LastError, ErrClosed)
		f.pass(3 * DefaultPoll)
		f.requireBuilt("too late")
	})
}
