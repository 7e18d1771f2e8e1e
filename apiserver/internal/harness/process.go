package harness

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Process is a program in a process of its own. It ends with the test.
type Process struct {
	t       *testing.T
	name    string
	recipe  recipe
	log     string
	command *exec.Cmd
	exited  chan struct{}
}

// recipe makes the command for a start.
type recipe func(context.Context) (*exec.Cmd, error)

// Run starts the program of the test binary that [Main] knows by this name.
func Run(t *testing.T, program string, args ...string) *Process {
	t.Helper()
	return run(t, program, func(ctx context.Context) (*exec.Cmd, error) { return Command(ctx, program, args...) })
}

// RunFile starts the program that is in a file.
func RunFile(t *testing.T, path string, args ...string) *Process {
	t.Helper()
	return run(t, filepath.Base(path), func(ctx context.Context) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, path, args...), nil
	})
}

func run(t *testing.T, name string, recipe recipe) *Process {
	t.Helper()
	p := &Process{t: t, name: name, recipe: recipe, log: filepath.Join(t.TempDir(), "log")}
	p.start()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("errors in the log of %s:\n%s", name, p.failures())
		}
	})
	return p
}

func (p *Process) start() {
	p.t.Helper()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(p.t, err)
	defer log.Close()
	// The test's own context is over before clean-up begins, and a program deserves its
	// orderly end.
	command, err := p.recipe(context.WithoutCancel(p.t.Context()))
	require.NoError(p.t, err)
	command.Stdout, command.Stderr = log, log
	require.NoError(p.t, command.Start())

	exited := make(chan struct{})
	p.command, p.exited = command, exited
	go func() {
		defer close(exited)
		_ = command.Wait() // Exit tells how it ended
	}()
}

// Exit waits until the process has ended by itself and returns its exit code.
func (p *Process) Exit() int {
	p.t.Helper()
	p.wait()
	return p.command.ProcessState.ExitCode()
}

// Exited is closed once the process has ended. A restarted process has another.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Stop ends the process as an operator would, and waits until it is gone. Stopping twice
// is harmless.
func (p *Process) Stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.wait()
}

// Kill ends the process as kill -9 does, in the middle of whatever it does, and waits
// until it is gone.
func (p *Process) Kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait()
}

// Restart starts the program again as it was started, once it has ended. Its log goes on.
func (p *Process) Restart() {
	p.t.Helper()
	p.wait()
	p.start()
}

// Log returns everything the process has written so far.
func (p *Process) Log() string {
	p.t.Helper()
	log, err := os.ReadFile(p.log)
	require.NoError(p.t, err)
	return string(log)
}

func (p *Process) signal(s os.Signal) {
	p.t.Helper()
	// It may have ended in the meantime, which is as good.
	if err := p.command.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(p.t, err)
	}
}

func (p *Process) wait() {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		// Killed by its id, so that it does not outlive the test that failed here.
		_ = p.command.Process.Kill()
		<-p.exited
		require.FailNow(p.t, p.name+" did not end by itself", p.failures())
	}
}

// failures are the end of what the process logged, without what klog marks as information
// or warning.
func (p *Process) failures() string {
	var kept []string
	for line := range strings.Lines(p.Log()) {
		if !informal.MatchString(line) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept[max(0, len(kept)-shownLines):], "")
}

var informal = regexp.MustCompile(`^[IW][0-9]{4} `)

// Pid is that of the process, which is another after a restart.
func (p *Process) Pid() int { return p.command.Process.Pid }
