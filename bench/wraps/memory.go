package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"

	"github.com/kube-atrest/atrest/internal/measure"
)

// peak is the unit of how much memory a process has had at most that serves a plugin and does
// nothing else: its VmHWM, with the code of this command. Client, Vault and TPM are not in it.
const peak = "peak-RSS-B"

// serves is what a process is told that is to be a plugin, before the store and a folder.
const serves = "serve"

// isPlugin reports whether this process is to be one.
func isPlugin(arguments []string) bool { return len(arguments) == 4 && arguments[1] == serves }

// servePlugin serves a store with a key of its own until hold ends, and says so when it does.
func servePlugin(ctx context.Context, name, folder string, hold io.Reader, out io.Writer) (err error) {
	i := slices.IndexFunc(stores(), func(s store) bool { return s.name == name })
	if i < 0 {
		return fmt.Errorf("there is no back end %q", name)
	}
	backend, config, end, err := stores()[i].open(ctx, folder)
	if err != nil {
		return err
	}
	defer end()
	served, err := pluginSide(ctx, backend, config, "unix://"+socketIn(folder))
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	_, err = io.Copy(io.Discard, hold)
	return errors.Join(err, served.end())
}

func socketIn(folder string) string { return folder + "/plugin.sock" }

// measureMemory has a process serve the store for each operation, under as many callers as there are.
func (o *options) measureMemory(ctx context.Context, s store, book *measure.Book) error {
	for _, op := range ops {
		err := inFolder(func(folder string) error { return o.measurePeak(ctx, s, op, folder, book) })
		if err != nil {
			return fmt.Errorf("%s in a process of its own: %w", s.name, err)
		}
	}
	return nil
}

func (o *options) measurePeak(ctx context.Context, s store, op, folder string, book *measure.Book) (err error) {
	by, pid, err := startPlugin(s.name, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, by.end()) }()
	do, err := by.does(ctx, op)
	if err != nil {
		return err
	}
	callers := loads[len(loads)-1]
	load := measure.Loop{Name: nameOf(s.name, op, callers, plugin), Goroutines: callers, Do: do}
	for range o.plan.Rounds {
		if err := load.Round(ctx, o.plan.Slice, measure.NewBook()); err != nil {
			return err
		}
	}
	if bytes := peakOf(pid); bytes > 0 {
		book.Add(load.Name, measure.Figure{Unit: peak, Value: bytes})
	}
	return nil
}

// startPlugin starts this program once more as a plugin, that ends with the side.
func startPlugin(store, folder string) (by side, pid int, err error) {
	self, err := os.Executable()
	if err != nil {
		return side{}, 0, err
	}
	command := exec.Command(self, serves, store, folder)
	var said bytes.Buffer
	command.Stderr = &said
	hold, err := command.StdinPipe()
	if err != nil {
		return side{}, 0, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return side{}, 0, err
	}
	if err := command.Start(); err != nil {
		return side{}, 0, err
	}
	end := func() error {
		hold.Close()
		if err := command.Wait(); err != nil {
			return fmt.Errorf("%w: %s", err, &said)
		}
		return nil
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return side{}, 0, errors.Join(err, end())
	}
	by, err = dialled(plugin, socketIn(folder), end)
	return by, command.Process.Pid, err
}

var highest = regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB$`)

// peakOf is the most memory that a process has had so far, 0 where the system does not tell.
func peakOf(pid int) float64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	found := highest.FindSubmatch(status)
	if found == nil {
		return 0
	}
	kB, _ := strconv.ParseFloat(string(found[1]), 64) // of digits
	return kB * 1024
}
