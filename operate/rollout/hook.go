package rollout

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/config"
)

// HookedFiles are files that a program reads and writes: PROGRAM read NAME gives
// the file on standard output, PROGRAM write NAME takes it from standard input.
// It has to replace the file in one step, as it may be ended at any time.
type HookedFiles struct {
	Program string
	// Timeout is for how long one call may take; [DefaultHookTimeout] if it is 0.
	// It is interrupted then, and killed some seconds later.
	Timeout time.Duration
	// Err is where it says what is wrong.
	Err io.Writer
}

// DefaultHookTimeout is how long one call of a program may take that reaches
// files, if nothing else is said.
const DefaultHookTimeout = 30 * time.Second

// Check has the program read the file. Whether it can write one is not asked, as
// there is nothing that it could write and leave the file as it is.
func (h HookedFiles) Check(ctx context.Context, apiserver string) error {
	_, err := h.Read(ctx, apiserver)
	return err
}

// Read keeps a byte more than a configuration may have at most.
func (h HookedFiles) Read(ctx context.Context, apiserver string) ([]byte, error) {
	out := limited{left: config.MaxSize + 1}
	err := h.run(ctx, nil, &out, "read", apiserver)
	return out.Bytes(), err
}

// Write gives the program the new content.
func (h HookedFiles) Write(ctx context.Context, apiserver string, content []byte) error {
	return h.run(ctx, bytes.NewReader(content), io.Discard, "write", apiserver)
}

// hookGrace is for how long a program that is no longer wanted may finish what
// it writes.
const hookGrace = 3 * time.Second

func (h HookedFiles) run(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	timeout := h.Timeout
	if timeout == 0 {
		timeout = DefaultHookTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it took longer than %s: give it more by --hook-timeout", timeout))
	defer cancel()
	command := exec.CommandContext(ctx, h.Program, args...)
	command.Stdin, command.Stdout, command.Stderr = in, out, h.Err
	// Killed at once it might leave half a file, and what it started may hold its
	// output open for ever.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = hookGrace
	err := command.Run()
	called := h.Program + " " + strings.Join(args, " ")
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%s: %w: %w", called, err, context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("%s: %w: see what it says above", called, err)
	}
	return nil
}

// limited keeps so many bytes of what is written to it.
type limited struct {
	bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	keep := p[:min(len(p), l.left)]
	l.left -= len(keep)
	l.Buffer.Write(keep)
	return len(p), nil
}
