package tpm_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// slow has a clock go on with each command of a kind, or with each one at all if that is 0, and
// counts what is unsealed.
func (b *bus) slow(clock *clocktesting.FakeClock, kind tpm2.TPMCC, by time.Duration) (unsealed *int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	unsealed = new(int)
	b.command = func(command []byte) {
		if code(command) == tpm2.TPMCCUnseal {
			*unsealed++
		}
		if kind == 0 || code(command) == kind {
			clock.Step(by)
		}
	}
	return unsealed
}

// slowStore is a file of keys on a bus, and a clock of its own, with a day between two proofs.
func slowStore(t *testing.T, b *bus, versions int) (*tpm.Store, *clocktesting.FakeClock) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	s, err := tpm.New(tpm.Config{Device: b.path, File: filepath.Join(t.TempDir(), "kek.json"), Check: 24 * time.Hour, Clock: clock})
	require.NoError(t, err)
	_, _, err = s.Create(t.Context(), true)
	require.NoError(t, err)
	for range versions - 1 {
		_, err = s.Rotate(t.Context())
		require.NoError(t, err)
	}
	return s, clock
}

// hour is a context that lasts for one.
func hour(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	return ctx
}

func TestWhatWasUnsealedStaysWhereThereIsNoTimeForAll(t *testing.T) {
	const versions = 12
	b := onBus(t, swtpmtest.Start(t))
	s, clock := slowStore(t, b, versions)
	newest := wrap(t, s)
	unsealed := b.slow(clock, tpm2.TPMCCUnseal, 10*time.Minute)

	session, err := s.Open(hour(t))
	require.NoError(t, err, "it is no error that it is slow")
	t.Cleanup(func() { require.NoError(t, session.Close(context.Background())) })
	require.Equal(t, 5, *unsealed, "three quarters of an hour")
	found, err := session.Versions(hour(t))
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, "5 of 12 keys are opened so far")
	require.Len(t, found.All, 5)
	requireOpens(t, session, newest)

	looks := 0
	for ; err != nil; looks++ {
		require.Less(t, looks, versions)
		_, err = session.Versions(hour(t))
	}
	require.Equal(t, 2, looks)
	require.Equal(t, versions, *unsealed, "each one once")
	found, err = session.Versions(hour(t))
	require.NoError(t, err)
	require.Len(t, found.All, versions)
	require.Equal(t, versions, *unsealed)
}

// As long as a machine is booted otherwise it is looked at every second.
func TestATPMIsAskedForOneOfManyKeysThatPCRsKeepClosed(t *testing.T) {
	chip := swtpmtest.Start(t)
	b := onBus(t, chip)
	s := b.store(t, filepath.Join(t.TempDir(), "kek.json"), "sha256:7")
	_, _, err := s.Create(t.Context(), true)
	require.NoError(t, err)
	for range 5 {
		_, err = s.Rotate(t.Context())
		require.NoError(t, err)
	}
	extend(t, chip, 7)
	unsealed := b.slow(clocktesting.NewFakeClock(time.Now()), 0, 0)
	session, found, err := looked(t, s)
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	require.Empty(t, found.All)
	require.Equal(t, 1, *unsealed)
	chip.Off()
	chip.On()
	found, err = session.Versions(t.Context())
	require.NoError(t, err)
	require.Len(t, found.All, 6)
}

// A TPM for which even one key takes more time than there is.
func TestEachLookOpensOneKeyAtLeast(t *testing.T) {
	b := onBus(t, swtpmtest.Start(t))
	s, clock := slowStore(t, b, 3)
	b.slow(clock, 0, 10*time.Hour)
	session, err := s.Open(hour(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, session.Close(context.Background())) })
	for _, opened := range []int{1, 2} {
		found, err := session.Versions(hour(t))
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		require.Len(t, found.All, opened)
	}
	found, err := session.Versions(hour(t))
	require.NoError(t, err)
	require.Len(t, found.All, 3)
}

// until is a context with a deadline, which ends by another clock.
type until struct {
	context.Context
	deadline time.Time
}

func (u until) Deadline() (time.Time, bool) { return u.deadline, true }

// Where there is time for one key at a look that is not always the same one.
func TestAStartComesToAnEndWhereThereIsTimeToProveOneKey(t *testing.T) {
	const versions = 6
	for _, answer := range []time.Duration{450, 1200, 1500, 1900} {
		t.Run((answer * time.Millisecond).String(), func(t *testing.T) {
			b := onBus(t, swtpmtest.Start(t))
			s, clock := slowStore(t, b, versions)
			var end time.Time
			cancel := func(error) {}
			within := func(most time.Duration) context.Context {
				var ctx context.Context
				b.mu.Lock()
				defer b.mu.Unlock()
				ctx, cancel = context.WithCancelCause(t.Context())
				end = clock.Now().Add(most)
				return until{ctx, time.Now().Add(most)}
			}
			b.mu.Lock()
			b.command = func([]byte) {
				if clock.Step(answer * time.Millisecond); clock.Now().After(end) {
					cancel(context.DeadlineExceeded)
				}
			}
			b.mu.Unlock()
			config := tpm.KeeperConfig()
			session, err := s.Open(within(config.OpenTimeout))
			require.NoError(t, err)
			t.Cleanup(func() { _ = session.Close(context.Background()) })
			_, err = session.Versions(within(config.CallTimeout))
			for looks := 0; err != nil; looks++ {
				require.Less(t, looks, versions, "each look opens one: %v", err)
				_, err = session.Versions(within(config.CallTimeout))
			}
			clock.Step(48 * time.Hour)
			found, err := session.Versions(within(config.CallTimeout))
			require.NoError(t, err, "a proof")
			require.Len(t, found.All, versions)
		})
	}
}

// One key that the TPM answers oddly for keeps no other one closed.
func TestAnOddAnswerForOneKeyLeavesTheOthersToBeOpened(t *testing.T) {
	b := onBus(t, swtpmtest.Start(t))
	s, _ := slowStore(t, b, 5)
	r, err := tpm.Decode(content(t, s))
	require.NoError(t, err)
	_, newest := tpm.Parts(r)
	odd, left := false, 2
	b.mu.Lock()
	b.command = func(command []byte) {
		if code(command) == tpm2.TPMCCLoad {
			odd = bytes.Contains(command, newest)
		}
	}
	b.change = func(command tpm2.TPMCC, answer []byte) []byte {
		if command != tpm2.TPMCCUnseal || !odd || left == 0 {
			return answer
		}
		left--
		return []byte("\x80\x01\x00\x00\x00\x0a\x00\x00\x01\x43") // TPM_RC_COMMAND_CODE
	}
	b.mu.Unlock()
	session, err := s.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, session.Close(context.Background())) })
	found, err := session.Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.Empty(t, found.All)
	found, err = session.Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable, "the newest still")
	require.Len(t, found.All, 4)
	found, err = session.Versions(t.Context())
	require.NoError(t, err)
	require.Len(t, found.All, 5)
}

// Nor does one for which it never answers well keep one closed that has failed once.
func TestAKeyThatFailsAlwaysLeavesOneThatFailedOnceToBeTriedAgain(t *testing.T) {
	b := onBus(t, swtpmtest.Start(t))
	s, _ := slowStore(t, b, 4)
	r := read(t, s)
	_, always := tpm.Parts(r)
	r.Writes = r.Keys[2].ID()
	_, once := tpm.Parts(r)
	var loaded []byte
	failed := false
	b.mu.Lock()
	b.command = func(command []byte) {
		if code(command) == tpm2.TPMCCLoad {
			loaded = bytes.Clone(command)
		}
	}
	b.change = func(command tpm2.TPMCC, answer []byte) []byte {
		isOnce := bytes.Contains(loaded, once)
		if command != tpm2.TPMCCUnseal || !bytes.Contains(loaded, always) && (!isOnce || failed) {
			return answer
		}
		failed = failed || isOnce
		return []byte("\x80\x01\x00\x00\x00\x0a\x00\x00\x01\x43") // TPM_RC_COMMAND_CODE
	}
	b.mu.Unlock()
	session, err := s.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, session.Close(context.Background())) })
	for _, opened := range []int{0, 0, 2, 3, 3} {
		found, err := session.Versions(t.Context())
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		require.Len(t, found.All, opened)
	}
}

// Where the disk cannot say that the file is there to stay it is read with: all of it, on a slow TPM too.
func TestAFileThatMayNotStayIsOpenedToTheEndAndStaysATrouble(t *testing.T) {
	b := onBus(t, swtpmtest.Start(t))
	s, clock := slowStore(t, b, 12)
	b.slow(clock, tpm2.TPMCCUnseal, 10*time.Minute)
	synced := tpm.FailToSyncOnce(s)
	session, err := s.Open(hour(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, session.Close(context.Background())) })
	for _, opened := range []int{5, 10, 12, 12} {
		found, err := session.Versions(hour(t))
		require.ErrorContains(t, err, "may not be on the disk to stay", "also when a later attempt succeeds")
		require.Equal(t, opened < 12, strings.Contains(err.Error(), "keys are opened so far"), err)
		require.Len(t, found.All, opened)
	}
	require.Equal(t, 3, *synced, "it is read again until all are open")
}

// What is in memory is no proof that the TPM opens what the file has now.
func TestAKeyThatIsSealedAnewAndDoesNotOpenStaysATrouble(t *testing.T) {
	s, _ := created(t, swtpmtest.Start(t), "")
	was := wrap(t, s)
	for range 2 {
		_, err := s.Rotate(t.Context())
		require.NoError(t, err)
	}
	session, _, err := looked(t, s)
	require.NoError(t, err)
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	r, err := tpm.Decode(data)
	require.NoError(t, err)
	data, err = tpm.Encode(tpm.Exchange(r)) // two that do not write
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.Path(), data, 0o600))
	for range 3 {
		requireTrouble(t, session, was, kmsplugin.ErrUnavailable, "something else")
	}
}

// For a proof the TPM is asked seven times.
func TestATPMThatTakesAlmostHalfASecondForAnAnswerIsNoTrouble(t *testing.T) {
	b := onBus(t, swtpmtest.Start(t))
	clock := clocktesting.NewFakeClock(time.Now())
	s, err := tpm.New(tpm.Config{Device: b.path, File: filepath.Join(t.TempDir(), "kek.json"), Clock: clock})
	require.NoError(t, err)
	_, _, err = s.Create(t.Context(), true)
	require.NoError(t, err)
	looks := make(chan kmsplugin.Look, 100)
	config := tpm.KeeperConfig()
	config.Clock, config.Observer.Looked = clock, func(look kmsplugin.Look) { looks <- look }
	keeper := plugintest.Keep(t, s, config)
	b.mu.Lock()
	b.command = func([]byte) { clock.Step(450 * time.Millisecond) }
	b.mu.Unlock()
	for range 10 {
		clock.Step(tpm.DefaultCheck)
		require.NoError(t, keeper.Check(t.Context()))
	}
	require.GreaterOrEqual(t, len(looks), 11)
	for range len(looks) {
		require.Equal(t, codes.OK, (<-looks).Code)
	}
}
