package tpm_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// tpmIsBusy is TPM_RC_RETRY.
var tpmIsBusy = []byte("\x80\x01\x00\x00\x00\x0a\x00\x00\x09\x22")

// requireEnds waits for something, while the clock goes on.
func requireEnds(t *testing.T, clock *clocktesting.FakeClock, do func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	var err error
	require.Eventually(t, func() bool {
		select {
		case err = <-ended:
			return true
		default:
			clock.Step(time.Second)
			return false
		}
	}, time.Minute, time.Millisecond, "it does not end")
	return err
}

func TestATPMThatHangsIsLeftWhenTheTimeIsUp(t *testing.T) {
	path := filepath.Join(shortFolder(t), "tpm.sock")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer listener.Close()
	clock := clocktesting.NewFakeClock(time.Now())
	s, err := tpm.New(tpm.Config{Device: path, File: filepath.Join(t.TempDir(), "kek.json"), Clock: clock})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { _, _, err := s.Create(ctx, false); ended <- err }()
	connection, err := listener.Accept()
	require.NoError(t, err)
	asked, err := message(connection)
	require.NoError(t, err)
	require.Equal(t, tpm2.TPMCCGetRandom, code(asked), "which loads nothing, if it is done after all")
	cancel()
	require.ErrorIs(t, requireEnds(t, clock, func() error { return <-ended }), kmsplugin.ErrUnavailable)

	_, _, err = s.Create(ctx, false)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, "has not answered the last question yet")
	require.NoError(t, connection.Close())
	ctx, cancel = context.WithCancel(t.Context())
	go func() { _, _, err := s.Create(ctx, false); ended <- err }()
	connection, err = listener.Accept()
	require.NoError(t, err, "once its process has ended another one is asked")
	require.NoError(t, connection.Close())
	require.ErrorIs(t, <-ended, kmsplugin.ErrUnavailable)
	cancel()
}

// standStill has the TPM stop before the next command of a kind, until it is told to go on.
func (b *bus) standStill(kind tpm2.TPMCC, stopped func()) (goOn func()) {
	on := make(chan struct{})
	var once sync.Once
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = func(command []byte, _ io.ReadWriter) {
		if code(command) == kind {
			once.Do(func() { stopped(); <-on })
		}
	}
	return func() { close(on) }
}

// As a swtpm that is stopped: it does what it was asked when it goes on, and has three places for objects.
func TestATPMThatStoodStillKeepsNothingOfWhoHasGone(t *testing.T) {
	for _, at := range []tpm2.TPMCC{tpm2.TPMCCGetRandom, tpm2.TPMCCCreatePrimary, tpm2.TPMCCLoad, tpm2.TPMCCStartAuthSession, tpm2.TPMCCUnseal, tpm2.TPMCCFlushContext} {
		t.Run(fmt.Sprintf("%#x", uint32(at)), func(t *testing.T) {
			chip := swtpmtest.Start(t)
			b := onBus(t, chip)
			s, clock := slowStore(t, b, 1)
			session, _, err := looked(t, s)
			require.NoError(t, err)
			for range 4 {
				clock.Step(48 * time.Hour)
				ctx, cancel := context.WithCancel(t.Context())
				goOn := b.standStill(at, cancel)
				err := requireEnds(t, clock, func() error { _, err := session.Versions(ctx); return err })
				if at != tpm2.TPMCCFlushContext {
					require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
				}
				clock.Step(48 * time.Hour)
				_, err = session.Versions(ctx)
				require.ErrorContains(t, err, "has not answered the last question yet")
				goOn()
				_, err = session.Versions(t.Context())
				require.NoError(t, err)
			}
			requireNothingLoaded(t, chip)
		})
	}
}

// A TPM that is busy with itself says so: what is loaded is flushed when it is not any more.
func TestATPMThatTurnsBusyIsLeftWhenTheTimeIsUp(t *testing.T) {
	chip := swtpmtest.Start(t)
	b := onBus(t, chip)
	s, clock := slowStore(t, b, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var busy atomic.Bool
	busy.Store(true)
	b.mu.Lock()
	b.change = func(command tpm2.TPMCC, answer []byte) []byte {
		if command != tpm2.TPMCCUnseal && command != tpm2.TPMCCFlushContext || !busy.Load() {
			return answer
		}
		cancel()
		return tpmIsBusy
	}
	b.mu.Unlock()
	err := requireEnds(t, clock, func() error { _, err := s.Rotate(ctx); return err })
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	busy.Store(false)
	require.NoError(t, requireEnds(t, clock, func() error { _, err := s.Rotate(t.Context()); return err }))
	requireNothingLoaded(t, chip)
}

func TestATPMThatIsBusyForLongIsAskedOnceASecond(t *testing.T) {
	b := onBus(t, swtpmtest.Start(t))
	var asked atomic.Int64
	b.change = func(tpm2.TPMCC, []byte) []byte { asked.Add(1); return tpmIsBusy }
	clock := clocktesting.NewFakeClock(time.Now())
	s, err := tpm.New(tpm.Config{Device: b.path, File: filepath.Join(t.TempDir(), "kek.json"), Clock: clock})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { _, _, err := s.Create(ctx, false); ended <- err }()
	for second := range 100 {
		require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond)
		require.EqualValues(t, second+1, asked.Load())
		clock.Step(time.Second)
	}
	cancel()
	require.ErrorIs(t, <-ended, kmsplugin.ErrUnavailable)
}
