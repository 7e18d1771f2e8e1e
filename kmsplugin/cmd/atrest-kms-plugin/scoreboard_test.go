//go:build cgo

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/conformance"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

var update = flag.Bool("update", false, "write the scoreboard to docs/plugins.md")

const page = "../../../docs/plugins.md"

// The scoreboard in the docs is what a run of all entrants, each a process of its own,
// comes to. Where a device for one of them is not installed it is skipped.
func TestScoreboard(t *testing.T) {
	reports, all := make([]*conformance.Report, len(entrants)), make([]*entered, len(entrants))
	for i, e := range entrants {
		all[i] = &entered{folder: plugintest.Folder(t)}
		all[i].kms = e.prepare(t, all[i].folder)
	}
	t.Run("run", func(t *testing.T) {
		for i, p := range all {
			t.Run(entrants[i].name, func(t *testing.T) {
				t.Parallel()
				p.t = t
				require.NoError(t, p.start(t.Context()))
				t.Cleanup(p.end)
				options := conformance.Options{Interval: 20 * time.Second, Timeout: 10 * time.Second} // of a busy machine
				report, err := conformance.Run(t.Context(), p.target(), options)
				require.NoError(t, err)
				for _, result := range report.Results { // what could not be carried out is tried once more
					if result.Outcome == conformance.Unknown {
						t.Logf("%s: %s", result.ID, result.Why)
						report, err = conformance.Run(t.Context(), p.target(), options)
						require.NoError(t, err)
						break
					}
				}
				reports[i] = report
				for _, result := range report.Results {
					if result.Outcome == conformance.Failed || result.Outcome == conformance.Unknown {
						t.Logf("%s: %s", result.ID, result.Why)
					}
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, begins := strings.Cut(string(text), "<!-- scoreboard -->\n")
	was, after, ends := strings.Cut(rest, "<!-- end of scoreboard -->")
	require.True(t, begins && ends, "%s has no scoreboard to be replaced", page)
	is := scoreboard(reports)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+"<!-- scoreboard -->\n"+is+"<!-- end of scoreboard -->"+after), 0o644))
		return
	}
	require.Equal(t, was, is, "write it anew: go test ./kmsplugin/cmd/atrest-kms-plugin -run TestScoreboard -update")
}

func scoreboard(reports []*conformance.Report) string {
	var text strings.Builder
	text.WriteString("| check |")
	for _, e := range entrants {
		fmt.Fprintf(&text, " %s |", e.name)
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(entrants)) + "\n")
	for i, check := range conformance.Checks() {
		fmt.Fprintf(&text, "| `%s` |", check.ID)
		for _, r := range reports {
			cell := string(r.Results[i].Outcome)
			if r.Results[i].Outcome == conformance.Failed {
				cell = "**failed**"
			}
			fmt.Fprintf(&text, " %s |", cell)
		}
		text.WriteString("\n")
	}
	text.WriteString("| passed of tried |")
	for _, r := range reports {
		fmt.Fprintf(&text, " %d of %d |", r.Count(conformance.Passed), len(r.Results)-r.Count(conformance.NotTried))
	}
	return text.String() + "\n"
}

// entered is an entrant that runs.
type entered struct {
	kms
	t      *testing.T
	folder string

	mu      sync.Mutex
	command *exec.Cmd
	ended   chan struct{}
}

func (p *entered) endpoint() string { return "unix://" + socketIn(p.folder) }

func (p *entered) target() conformance.Target {
	told := func(change func() error) func(context.Context) error {
		if change == nil {
			return nil
		}
		return func(context.Context) error { return change() }
	}
	target := conformance.Target{
		Endpoint: p.endpoint(), Rotate: told(p.rotate), Break: told(p.breakIt), Mend: told(p.mend),
		Restart: p.restart, Second: p.second, Terminate: p.signal(syscall.SIGTERM), Kill: p.signal(syscall.SIGKILL),
		Log: func() ([]byte, error) { return os.ReadFile(filepath.Join(p.folder, "log")) },
	}
	if p.breakIt != nil {
		target.Breaks = conformance.LossOfKMS
	}
	if p.recreate != nil {
		target.Recreate = func(ctx context.Context) error {
			p.end()
			return errors.Join(p.kms.recreate(), p.start(ctx))
		}
	}
	return target
}

// program is the process of an entrant, to be started.
func (p *entered) program() (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(p.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	command := p.serve()
	command.Stdout, command.Stderr = log, log
	return command, nil
}

// start returns when the plugin listens, or has ended.
func (p *entered) start(context.Context) error {
	command, err := p.program()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	p.mu.Lock()
	p.command, p.ended = command, ended
	p.mu.Unlock()
	for {
		if _, err := conformance.Serves(p.endpoint()); err == nil {
			return nil
		}
		select {
		case <-ended:
			return errors.New("it ended at once")
		case <-time.After(10 * time.Millisecond): // it tells nobody that it listens
		}
	}
}

// end has the process end, and waits for that.
func (p *entered) end() {
	_ = p.signal(syscall.SIGTERM)(context.Background())
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.t.Error("it does not end")
		_ = p.signal(syscall.SIGKILL)(context.Background())
		<-p.ended
	}
}

func (p *entered) restart(ctx context.Context) error {
	p.end()
	return p.start(ctx)
}

func (p *entered) signal(signal os.Signal) func(context.Context) error {
	return func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.command.Process.Signal(signal)
	}
}

// second starts another on the same socket, which ends with ctx.
func (p *entered) second(ctx context.Context) error {
	var printed bytes.Buffer
	command, err := p.program()
	if err == nil {
		command.Stdout = io.MultiWriter(command.Stdout, &printed)
		command.Stderr = command.Stdout
		err = command.Start()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", conformance.ErrNotRun, err)
	}
	defer context.AfterFunc(ctx, func() { _ = command.Process.Kill() })()
	if err := command.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, printed.Bytes())
	}
	return nil
}
