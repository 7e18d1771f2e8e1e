package rollout

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
)

// HookedFiles are files that a program reads and writes: PROGRAM read NAME gives
// the file on standard output, PROGRAM write NAME takes it from standard input.
// It has to replace the file in one step, as it may be ended at any time. By
// ATREST_SHA256 in its environment it can see whether it was given all of it, and by
// ATREST_WAS_SHA256 whether the file is the one that is to be replaced.
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
	err := h.run(ctx, "read", apiserver, func(c *exec.Cmd) { c.Stdout = &out })
	return out.kept.Bytes(), err
}

// Write gives the program the new content, and the hashes of that and of what it replaces.
func (h HookedFiles) Write(ctx context.Context, apiserver string, was, content []byte) error {
	return h.run(ctx, "write", apiserver, func(c *exec.Cmd) {
		c.Stdin = bytes.NewReader(content)
		c.Env = append(os.Environ(), "ATREST_SHA256="+hash(content), "ATREST_WAS_SHA256="+hash(was))
	})
}

// hash is that of a file as sha256sum prints it.
func hash(file []byte) string { return strings.TrimPrefix(hashed.Name(file), "sha256:") }

// hookGrace is for how long a program that is no longer wanted may finish what
// it writes.
const hookGrace = 3 * time.Second

func (h HookedFiles) run(ctx context.Context, what, apiserver string, prepare func(*exec.Cmd)) error {
	late, err := call(ctx, limit{h.Timeout, "--hook-timeout"}, []string{h.Program, what, apiserver}, func(c *exec.Cmd) {
		c.Stderr = h.Err
		prepare(c)
	})
	return ofHook(h.Program, what, apiserver, late, err)
}

// ofHook says which call of a program an error is of.
func ofHook(program, what, apiserver string, late bool, err error) error {
	switch {
	case err == nil:
		return nil
	case late:
		return fmt.Errorf("%s %s %s: %w", program, what, apiserver, err)
	default:
		return fmt.Errorf("%s %s %s: %w: see what it says above", program, what, apiserver, err)
	}
}

// limit is how long a program may take, and the flag that says so.
type limit struct {
	time time.Duration
	flag string
}

// call runs a program, for [DefaultHookTimeout] if no time is given. late is that it was
// ended before it was done.
func call(ctx context.Context, l limit, program []string, prepare func(*exec.Cmd)) (late bool, err error) {
	l.time = cmp.Or(l.time, DefaultHookTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, l.time, fmt.Errorf("it took longer than %s: give it more by %s", l.time, l.flag))
	defer cancel()
	command := exec.CommandContext(ctx, program[0], program[1:]...)
	prepare(command)
	// Killed at once it might leave half a file, and what it started may hold its
	// output open for ever.
	group(command)
	command.WaitDelay = hookGrace
	err = command.Run()
	end(command) // what it started could put back later what it was told to write first
	if err != nil && ctx.Err() != nil {
		return true, fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return false, err
}

// limited keeps so many bytes of what is written to it. The buffer is no part of
// its type, as one would read past the limit by ReadFrom.
type limited struct {
	kept bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	keep := p[:min(len(p), l.left)]
	l.left -= len(keep)
	l.kept.Write(keep)
	return len(p), nil
}
