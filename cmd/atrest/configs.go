package main

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
)

// configFiles are the configuration files of apiservers, by the apiserver's name.
type configFiles interface {
	read(ctx context.Context, apiserver string) ([]byte, error)
	// write replaces a file as a whole.
	write(ctx context.Context, apiserver string, content []byte) error
}

// placeholder stands for the name of an apiserver.
const placeholder = "{apiserver}"

// localFiles are files that are reached from here. The path may have the
// placeholder in it; without it the apiservers share one file.
type localFiles struct{ path string }

func (f localFiles) at(apiserver string) string {
	return strings.ReplaceAll(f.path, placeholder, apiserver)
}

func (f localFiles) read(_ context.Context, apiserver string) ([]byte, error) {
	return readLimited(f.at(apiserver), nil, config.MaxSize)
}

func (f localFiles) write(_ context.Context, apiserver string, content []byte) error {
	path, err := filepath.EvalSymlinks(f.at(apiserver))
	if err != nil {
		return err
	}
	return exchangeFile(path, content)
}

// exchangeFile puts content in the place of a file, with its mode and owner, in
// one step: an apiserver reads the one or the other, also after a crash.
func exchangeFile(path string, content []byte) error {
	old, err := os.Stat(path)
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".atrest-*")
	if err != nil {
		return fmt.Errorf("%w: a new file has to be made beside the old one: allow it, or have --config-hook do it", err)
	}
	defer os.Remove(next.Name())
	defer next.Close()
	if err := next.Chmod(old.Mode().Perm()); err != nil {
		return err
	}
	if err := giveTo(next, old); err != nil {
		return fmt.Errorf("%w: the new file would have another owner than the old one: run as root, or have --config-hook do it", err)
	}
	if _, err := next.Write(content); err != nil {
		return err
	}
	if err := next.Sync(); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), path); err != nil {
		return fmt.Errorf("%w: a file that is mounted by itself cannot be exchanged: have --config-hook do it", err)
	}
	return syncFolder(filepath.Dir(path))
}

// hookedFiles are files that a program reads and writes: PROGRAM read NAME gives
// the file on standard output, PROGRAM write NAME takes it from standard input.
type hookedFiles struct {
	program string
	err     io.Writer
}

func (h hookedFiles) read(ctx context.Context, apiserver string) ([]byte, error) {
	out := limited{left: config.MaxSize + 1}
	err := h.run(ctx, nil, &out, "read", apiserver)
	return out.Bytes(), err
}

func (h hookedFiles) write(ctx context.Context, apiserver string, content []byte) error {
	return h.run(ctx, bytes.NewReader(content), io.Discard, "write", apiserver)
}

// hookGrace is for how long a program that is no longer wanted may finish what
// it writes.
const hookGrace = 3 * time.Second

func (h hookedFiles) run(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	command := exec.CommandContext(ctx, h.program, args...)
	command.Stdin, command.Stdout, command.Stderr = in, out, h.err
	// Killed at once it might leave half a file, and what it started may hold its
	// output open for ever.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = hookGrace
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: see what it says above", h.program, strings.Join(args, " "), err)
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
