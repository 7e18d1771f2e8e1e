package rollout

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/wholefile"
)

// Files are the configuration files of apiservers, by the apiserver's name.
type Files interface {
	Read(ctx context.Context, apiserver string) ([]byte, error)
	// Write replaces a file as a whole.
	Write(ctx context.Context, apiserver string, content []byte) error
}

// Placeholder stands for the name of an apiserver.
const Placeholder = "{apiserver}"

// LocalFiles are files that are reached from here. The path may have the
// placeholder in it; without it the apiservers share one file.
type LocalFiles struct{ Path string }

func (f LocalFiles) at(apiserver string) string {
	return strings.ReplaceAll(f.Path, Placeholder, apiserver)
}

// Read reads a byte more than a configuration may have at most.
func (f LocalFiles) Read(_ context.Context, apiserver string) ([]byte, error) {
	file, err := os.Open(f.at(apiserver))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, config.MaxSize+1))
}

// Write exchanges a file in one step, and leaves it its mode and owner.
func (f LocalFiles) Write(_ context.Context, apiserver string, content []byte) error {
	path, err := filepath.EvalSymlinks(f.at(apiserver))
	if err != nil {
		return err
	}
	return wholefile.Exchange(path, content, "have --config-hook do it")
}

// HookedFiles are files that a program reads and writes: PROGRAM read NAME gives
// the file on standard output, PROGRAM write NAME takes it from standard input.
type HookedFiles struct {
	Program string
	// Err is where it says what is wrong.
	Err     io.Writer
	Timeout time.Duration
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
	command := exec.CommandContext(ctx, h.Program, args...)
	command.Stdin, command.Stdout, command.Stderr = in, out, h.Err
	// Killed at once it might leave half a file, and what it started may hold its
	// output open for ever.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = hookGrace
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: see what it says above", h.Program, strings.Join(args, " "), err)
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

const DefaultHookTimeout = 30 * time.Second
