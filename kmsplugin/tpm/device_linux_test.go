package tpm_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// A device is a terminal without line editing: a file of the kernel's, as a TPM is one, behind which there
// is a swtpm.
type device struct {
	path   string
	mu     sync.Mutex
	before func(command []byte)
}

func onDevice(t *testing.T, chip *swtpmtest.TPM) *device {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminal to be a device: ", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	d := &device{path: fmt.Sprintf("/dev/pts/%d", n), before: func([]byte) {}}
	open, err := os.OpenFile(d.path, os.O_RDWR|unix.O_NOCTTY, 0) // the other end is at its end while nobody has it open
	require.NoError(t, err)
	t.Cleanup(func() { open.Close() })
	raw, err := unix.IoctlGetTermios(int(open.Fd()), unix.TCGETS)
	require.NoError(t, err)
	raw.Iflag, raw.Oflag, raw.Lflag = 0, 0, 0
	require.NoError(t, unix.IoctlSetTermios(int(open.Fd()), unix.TCSETS, raw))
	go d.carry(master, chip.Device())
	return d
}

func (d *device) carry(process *os.File, socket string) {
	for {
		command, err := message(process)
		if err != nil {
			return
		}
		d.mu.Lock()
		before := d.before
		d.mu.Unlock()
		before(command)
		chip, err := net.Dial("unix", socket)
		if err != nil {
			return
		}
		var answer []byte
		if _, err = chip.Write(command); err == nil {
			answer, err = message(chip)
		}
		chip.Close()
		if err != nil {
			return
		}
		if _, err := process.Write(answer); err != nil {
			return
		}
	}
}

func TestADeviceKeepsNothingOfWhoHasGone(t *testing.T) {
	chip := swtpmtest.Start(t)
	d := onDevice(t, chip)
	clock := clocktesting.NewFakeClock(time.Now())
	s, err := tpm.New(tpm.Config{Device: d.path, File: filepath.Join(t.TempDir(), "kek.json"), PCRs: "sha256:7", Clock: clock})
	require.NoError(t, err)
	_, recoveryKey, err := s.Create(t.Context(), true)
	require.NoError(t, err)
	_, err = s.Rotate(t.Context())
	require.NoError(t, err)
	was := wrap(t, s)
	_, err = s.Recover(t.Context(), recoveryKey, "")
	require.NoError(t, err)
	session, _, err := looked(t, s)
	require.NoError(t, err)
	requireOpens(t, session, was)

	// It stands still, and goes on when nobody waits any more.
	for _, at := range []tpm2.TPMCC{tpm2.TPMCCCreatePrimary, tpm2.TPMCCLoad, tpm2.TPMCCUnseal, tpm2.TPMCCFlushContext} {
		clock.Step(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		on := make(chan struct{})
		var once sync.Once
		d.mu.Lock()
		d.before = func(command []byte) {
			if code(command) == at {
				once.Do(func() { cancel(); <-on })
			}
		}
		d.mu.Unlock()
		err := requireEnds(t, clock, func() error { _, err := session.Versions(ctx); return err })
		if at != tpm2.TPMCCFlushContext {
			require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		}
		close(on)
		clock.Step(time.Hour)
		_, err = session.Versions(t.Context())
		require.NoError(t, err)
		cancel()
	}
	requireNothingLoaded(t, chip)
}
