// Package swtpmtest is a TPM that is a process, for as long as a test lasts. It is for tests
// alone: everything that fails fails the test, and where there is no swtpm the test is skipped.
package swtpmtest

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A TPM is a swtpm with a state of its own.
type TPM struct {
	t      testing.TB
	folder string
	stop   func()
}

// Start starts a new one.
func Start(t testing.TB) *TPM {
	t.Helper()
	if _, err := exec.LookPath("swtpm"); err != nil {
		t.Skip("no TPM to test with: apt-get install swtpm: ", err)
	}
	// Short: the path of a socket has to fit into about 100 bytes.
	folder, err := os.MkdirTemp("", "tpm")
	require.NoError(t, err)
	tpm := &TPM{t: t, folder: folder}
	tpm.On()
	t.Cleanup(func() {
		tpm.Off()
		require.NoError(t, os.RemoveAll(folder))
	})
	return tpm
}

// Device is what to open.
func (p *TPM) Device() string { return filepath.Join(p.folder, "tpm.sock") }

// Off switches it off, as with the machine: what it was told since it was on is gone, its seeds stay.
func (p *TPM) Off() {
	if p.stop != nil {
		p.stop()
	}
	p.stop = nil
}

// On switches it on again.
func (p *TPM) On() {
	p.t.Helper()
	require.Nil(p.t, p.stop, "it is on")
	_ = os.Remove(p.Device())
	command := exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+p.folder,
		"--server", "type=unixio,path="+p.Device(), "--ctrl", "type=unixio,path="+p.Device()+".ctrl", "--flags", "startup-clear")
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	require.NoError(p.t, command.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = command.Wait() }()
	p.stop = func() { _ = command.Process.Kill(); <-ended }
	for {
		connection, err := net.Dial("unix", p.Device())
		if err == nil {
			require.NoError(p.t, connection.Close())
			return
		}
		select {
		case <-ended:
			require.Fail(p.t, "swtpm ended", said.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
