package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

const (
	// stopTimeout bounds the orderly end of a program; a kube-apiserver waits up to a
	// minute for its requests.
	stopTimeout = 90 * time.Second
	// shownBytes is how much of a program's log an error shows.
	shownBytes = 2000
)

// process is a program of this binary in a process of its own.
type process struct {
	name, log string
	command   *exec.Cmd
	end       context.CancelFunc
	exited    chan struct{}
}

// startProcess starts a program, which writes its log into the file. It is told to stop
// when ctx ends.
func startProcess(ctx context.Context, name, log string, args ...string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	ctx, end := context.WithCancel(ctx)
	p := &process{name: name, log: log, end: end, exited: make(chan struct{})}
	if p.command, err = harness.Command(ctx, name, args...); err == nil {
		p.command.Stdout, p.command.Stderr = file, file
		p.command.Cancel = func() error { return p.command.Process.Signal(syscall.SIGTERM) }
		p.command.WaitDelay = stopTimeout
		err = p.command.Start()
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.command.Wait() // how it ended is in its log
	}()
	return p, nil
}

// stop ends the process as an operator would and waits until it is gone. Stopping twice
// is harmless.
func (p *process) stop() {
	p.end()
	<-p.exited
}

// while gives a context that also ends when the process does, or takes too long to start.
func (p *process) while(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.exited:
			log, _ := os.ReadFile(p.log)
			cancel(fmt.Errorf("%s has ended; the end of its log:\n%s", p.name, log[max(0, len(log)-shownBytes):]))
		case <-time.After(startTimeout):
			cancel(fmt.Errorf("%s does not start within %s", p.name, startTimeout))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// cpu is the time that processors have spent on the process so far. 0 where there is no
// /proc.
func (p *process) cpu() (total time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.command.Process.Pid)) // a good pattern
	for _, thread := range threads {
		// Nanoseconds on a processor come first (proc_pid_schedstat). A thread that ended
		// in between is left out; those of a Go program hardly ever do.
		var spent time.Duration
		text, _ := os.ReadFile(thread)
		if _, err := fmt.Sscan(string(text), &spent); err == nil {
			total += spent
		}
	}
	return total
}

var (
	vmRSS = regexp.MustCompile(`(?m)^VmRSS:\s*(\d+) kB$`) // now
	vmHWM = regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB$`) // at most so far
)

// memory is how many bytes of the process are in memory. 0 where there is no /proc.
func (p *process) memory(line *regexp.Regexp) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	found := line.FindSubmatch(text)
	if found == nil {
		return 0
	}
	kib, _ := strconv.ParseFloat(string(found[1]), 64) // of digits
	return kib * 1024
}
