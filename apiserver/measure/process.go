package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
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
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	ctx, end := context.WithCancel(ctx)
	p := &process{name: name, log: log, command: exec.CommandContext(ctx, self, args...), end: end, exited: make(chan struct{})}
	p.command.Env = append(os.Environ(), programVariable+"="+name)
	p.command.Stdout, p.command.Stderr = file, file
	p.command.Cancel = func() error { return p.command.Process.Signal(syscall.SIGTERM) }
	p.command.WaitDelay = stopTimeout
	// The program ends when this pipe does, also when this process is killed.
	if _, err = p.command.StdinPipe(); err == nil {
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

// while gives a context that also ends when the process does.
func (p *process) while(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.exited:
			cancel(fmt.Errorf("%s has ended; the end of its log:\n%s", p.name, p.lastWords()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

func (p *process) lastWords() string {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-shownBytes):])
}

// cpu is the time that processors have spent on the process so far. 0 where there is no
// /proc.
func (p *process) cpu() time.Duration {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	var total time.Duration
	for _, thread := range threads {
		// Nanoseconds on a processor come first (proc_pid_schedstat). A thread that ended
		// in between is left out; those of a Go program hardly ever do.
		var spent time.Duration
		if _, err := fmt.Sscan(firstLine(thread), &spent); err == nil {
			total += spent
		}
	}
	return total
}

// resident is how many bytes of the process are in memory. 0 where there is no /proc.
func (p *process) resident() float64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if size, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(size), " kB"), 64)
			return kib * 1024
		}
	}
	return 0
}
