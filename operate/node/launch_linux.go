package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Limits bound a plugin's process.
type Limits struct {
	// Memory is the most that it may have for itself, in bytes, and Files how many files and
	// sockets it may have open. 0 is no limit.
	Memory uint64 `json:"memory,omitempty"`
	Files  uint64 `json:"files,omitempty"`
}

// What a process that is to be a plugin has open beside its standard streams.
const (
	programFD = 3 // the program, of which the digest was checked
	gateFD    = 4 // by which it is told that it is on record
)

// goAhead is said by the gate.
const goAhead = 'g'

// launch is what a process is told that is to be a plugin.
type launch struct {
	Limits Limits   `json:"limits"`
	Args   []string `json:"args"`
}

// Launch makes the calling process the plugin that [Processes] started it for, and returns only
// if that fails. It waits until its number and its birth are on record: a node that is killed
// before leaves no plugin that nobody knows of. What it is given are the arguments after
// those of [Processes.Launcher].
func Launch(args []string) error {
	var l launch
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &l) != nil || len(l.Args) == 0 {
		return errors.New("this is run by the node alone, to start a plugin")
	}
	gate := os.NewFile(gateFD, "gate")
	said := make([]byte, 1)
	if _, err := io.ReadFull(gate, said); err != nil || said[0] != goAhead {
		return errors.New("the node has gone, so nothing is started")
	}
	gate.Close()
	if err := l.Limits.set(); err != nil {
		return err
	}
	unix.Umask(0o077)
	unix.CloseOnExec(programFD)
	err := unix.Exec(fmt.Sprintf("/proc/self/fd/%d", programFD), l.Args, os.Environ())
	return fmt.Errorf("start %s: %w", l.Args[0], err)
}

// set sets the limits of this process, which stay when it becomes another program. There is
// never a core: it would hold credentials and keys. Where a program takes cores (core(5)), Linux gives it one
// whatever the limit is, unless it is one byte, which is too little for a file too. Who has none may not set that.
func (l Limits) set() error {
	signal.Ignore(unix.SIGXFSZ) // who writes more has an error, and does not end
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return fmt.Errorf("limit of core: %w", err)
	}
	for _, limit := range []struct {
		what  string
		which int
		most  uint64
	}{
		{"memory", unix.RLIMIT_DATA, l.Memory},
		{"open files", unix.RLIMIT_NOFILE, l.Files},
		{"core", unix.RLIMIT_CORE, min(1, core.Max)},
		{"one file", unix.RLIMIT_FSIZE, maxFile},
	} {
		if limit.most == 0 {
			continue
		}
		if err := unix.Setrlimit(limit.which, &unix.Rlimit{Cur: limit.most, Max: limit.most}); err != nil {
			return fmt.Errorf("limit of %s to %d: %w", limit.what, limit.most, err)
		}
	}
	return nil
}
