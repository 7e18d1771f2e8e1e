// Package harness gives a test real servers: an etcd, and kube-apiservers as processes of
// their own.
//
// The processes are the test binary itself under another name, so the servers are always
// those of the tree that is being tested. Everything listens on this machine only and
// ends with the test.
package harness

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
)

// programVariable tells a binary which of its programs to be.
const programVariable = "ATREST_TEST_PROGRAM"

// Main is the body of a TestMain: it runs the program that a test started this binary as,
// and the tests when none did. More of these run at once than there are processors, as they
// wait for servers most of the time; -parallel says otherwise.
func Main(m *testing.M, programs map[string]func() int) int {
	if program, started := Program(programs); started {
		return program()
	}
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		return Ended(err)
	}
	code := m.Run()
	if err := built.remove(); err != nil {
		return Ended(err)
	}
	return code
}

// Program is the one that this binary was started as by [Command], if it was. It ends when
// the process that started it is gone, however that came about.
func Program(programs map[string]func() int) (program func() int, started bool) {
	name, started := os.LookupEnv(programVariable)
	if !started {
		return nil, false
	}
	program, known := programs[name]
	if !known {
		return func() int { return Ended(fmt.Errorf("%s=%q is not a program of this binary", programVariable, name)) }, true
	}
	if err := beHost(); err != nil {
		return func() int { return Ended(fmt.Errorf("take the name of a host: %w", err)) }, true
	}
	go func() {
		// The parent holds the other end open and writes nothing: this returns when it is
		// gone.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	return program, true
}

// Command is the named program with its arguments, not yet started. The caller waits for
// it; when ctx ends it is killed.
func Command(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this binary: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), programVariable+"="+program)
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("hold %s: %w", program, err)
	}
	return cmd, nil
}
