package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/kmsplugin/conformance"
)

// pluginFlags say which plugin is held to the checks, and what may be done to it.
type pluginFlags struct {
	endpoint                                         string
	rotate, breakIt, mend, recreate, restart, second string
	breakIs                                          string
	pid                                              int
	log                                              string
	timeout                                          time.Duration
}

// losses are the values of --break-is.
var losses = []string{string(conformance.LossOfKMS), string(conformance.LossOfCredentials), string(conformance.LossOfKey)}

func (f *pluginFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.endpoint, "endpoint", "", "where the plugin listens, as in the EncryptionConfiguration: unix:///PATH")
	flags.StringVar(&f.rotate, "rotate", "", "command that rotates the key in the KMS")
	flags.StringVar(&f.breakIt, "break", "", "command that takes the KMS, the credentials or the key away")
	flags.StringVar(&f.mend, "mend", "", "command that gives back what --break took")
	flags.StringVar(&f.breakIs, "break-is", "", "what --break takes away: kms, credentials or key; then errors have to tell of that")
	flags.StringVar(&f.recreate, "recreate", "", "command that deletes the key and makes another one of the same name")
	flags.StringVar(&f.restart, "restart", "", "command that ends the plugin, if it runs, and starts it")
	flags.StringVar(&f.second, "second", "", "command that starts another plugin on the same endpoint")
	flags.IntVar(&f.pid, "pid", 0, "the plugin's process, to be sent SIGTERM and SIGKILL; needs --restart")
	flags.StringVar(&f.log, "log", "", "file that the plugin logs to")
	flags.DurationVar(&f.timeout, "command-timeout", 2*time.Minute, "within which a command has to end")
}

// target is the plugin, with what may be done to it.
func (f *pluginFlags) target() (conformance.Target, error) {
	switch {
	case f.endpoint == "":
		return conformance.Target{}, usagef("flag --endpoint is missing: where does the plugin listen?")
	case (f.breakIt == "") != (f.mend == ""):
		return conformance.Target{}, usagef("flags --break and --mend go together: what is broken has to be mended")
	case f.breakIs != "" && f.breakIt == "":
		return conformance.Target{}, usagef("flag --break-is needs --break: nothing is taken away")
	case f.breakIs != "" && !slices.Contains(losses, f.breakIs):
		return conformance.Target{}, usagef("flag --break-is is %q: %s", f.breakIs, strings.Join(losses, ", "))
	case f.pid != 0 && f.restart == "":
		return conformance.Target{}, usagef("flag --pid needs --restart: a plugin that is killed has to come back")
	case f.timeout <= 0:
		return conformance.Target{}, usagef("flag --command-timeout is more than nothing")
	}
	t := conformance.Target{
		Endpoint: f.endpoint, Rotate: f.command("--rotate", f.rotate), Break: f.command("--break", f.breakIt), Mend: f.command("--mend", f.mend),
		Breaks:   conformance.Loss(f.breakIs),
		Recreate: f.command("--recreate", f.recreate), Restart: f.command("--restart", f.restart), Second: f.secondPlugin(),
	}
	if f.pid != 0 {
		if err := f.checkPID(); err != nil {
			return conformance.Target{}, err
		}
		t.Terminate, t.Kill = f.signal(syscall.SIGTERM), f.signal(syscall.SIGKILL)
	}
	if f.log != "" {
		read, err := logSince(f.log)
		if err != nil {
			return conformance.Target{}, err
		}
		t.Log = read
	}
	return t, nil
}

// command runs a command line. Its error holds the end of what it printed.
func (f *pluginFlags) command(flag, line string) func(context.Context) error {
	if line == "" {
		return nil
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		printed, err := shell(ctx, line)
		switch {
		case err == nil:
			return nil
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			err = fmt.Errorf("it did not end within %s", f.timeout)
		case ctx.Err() != nil:
			err = ctx.Err()
		}
		return fmt.Errorf("the command of %s failed: %w%s", flag, err, quotedLines(flag, printed))
	}
}

// shell runs a command line, in a group of processes of its own, which ends with ctx. It
// gives what was printed: into a file, as a plugin that was started in the background
// would keep a pipe open.
func shell(ctx context.Context, line string) (printed string, err error) {
	file, err := os.CreateTemp("", "atrest-conform-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	command := exec.CommandContext(ctx, "sh", "-c", line)
	command.Stdout, command.Stderr = file, file
	inGroup(command)
	err = command.Run()
	return tail(file), err
}

// mostPrinted is how much of a command's output is shown, in bytes.
const mostPrinted = 2000

func tail(file *os.File) string {
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	from := max(0, info.Size()-mostPrinted)
	text := make([]byte, info.Size()-from)
	n, err := file.ReadAt(text, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return string(text[:n])
}

// quotedLines are lines with a flag in front of each.
func quotedLines(flag, text string) string {
	var all strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&all, "\n  %s| %s", flag, strings.TrimRight(line, "\r\n"))
	}
	return all.String()
}

// Exit codes of sh for a command that it cannot run.
const (
	notExecutable = 126
	notFound      = 127
)

// secondPlugin runs the other plugin until it ends or ctx does.
func (f *pluginFlags) secondPlugin() func(context.Context) error {
	if f.second == "" {
		return nil
	}
	return func(ctx context.Context) error {
		printed, err := shell(ctx, f.second)
		var exit *exec.ExitError
		ran := err == nil || errors.As(err, &exit) && exit.ExitCode() != notExecutable && exit.ExitCode() != notFound
		if !ran {
			return fmt.Errorf("%w: the command of --second failed: %w%s", conformance.ErrNotRun, err, quotedLines("--second", printed))
		}
		if err != nil { // what it printed tells whether it was for the socket
			return fmt.Errorf("%w%s", err, quotedLines("--second", printed))
		}
		return nil
	}
}

// checkPID sees that it is the plugin that would be killed.
func (f *pluginFlags) checkPID() error {
	peer, err := conformance.Serves(f.endpoint)
	switch {
	case err != nil:
		return fmt.Errorf("the process at %s: %w", f.endpoint, err)
	case peer.PID == 0:
		return usagef("flag --pid is %d, and the kernel does not tell who listens at %s: is it in another container? run this there", f.pid, f.endpoint)
	case peer.PID != f.pid:
		return usagef("flag --pid is %d, and process %d listens at %s", f.pid, peer.PID, f.endpoint)
	}
	return nil
}

// signal sends one to whoever listens: a plugin that was restarted is another process.
func (f *pluginFlags) signal(signal syscall.Signal) func(context.Context) error {
	return func(context.Context) error {
		peer, err := conformance.Serves(f.endpoint)
		if err != nil {
			return err
		}
		if peer.PID <= 1 {
			return fmt.Errorf("process %d listens at %s, which is not one to end", peer.PID, f.endpoint)
		}
		process, err := os.FindProcess(peer.PID)
		if err != nil {
			return err
		}
		return process.Signal(signal)
	}
}

// mostLog is how much of a log is read, in bytes.
const mostLog = 256 << 20

// logSince reads what a log has more than now.
func logSince(path string) (func() ([]byte, error), error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("flag --log: %w", err)
	}
	if !info.Mode().IsRegular() { // a pipe has nothing that could be read once more
		return nil, usagef("flag --log: %s is no file that keeps what is logged: have the plugin append to one", path)
	}
	from := info.Size()
	return func() ([]byte, error) {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		now, err := file.Stat()
		if err != nil {
			return nil, err
		}
		if !os.SameFile(info, now) || now.Size() < from {
			return nil, fmt.Errorf("%s was begun anew meanwhile, and what it had is not known: have the plugin append to it, and nobody rotate it", path)
		}
		more := now.Size() - from
		if more > mostLog {
			return nil, fmt.Errorf("%s has %s more than before, of which at most %s are looked at", path, size(more), size(mostLog))
		}
		return io.ReadAll(io.NewSectionReader(file, from, more))
	}, nil
}
