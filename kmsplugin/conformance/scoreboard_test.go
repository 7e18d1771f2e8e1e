package conformance_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
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

const page = "../../docs/plugins.md"

// The scoreboard in the docs is what a run of all entrants, each a process of its own,
// comes to.
func TestScoreboard(t *testing.T) {
	reports := make([]*conformance.Report, len(entrants))
	t.Run("run", func(t *testing.T) {
		for i, e := range entrants {
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				p := &process{t: t, entrant: e, folder: plugintest.Folder(t)}
				if e.prepare != nil {
					e.prepare(t, p.folder)
				}
				require.NoError(t, p.start(t.Context()))
				t.Cleanup(p.end)
				report, err := conformance.Run(t.Context(), p.target(), conformance.Options{Interval: 5 * time.Second})
				require.NoError(t, err)
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
	require.Equal(t, was, is, "write it anew: go test ./kmsplugin/conformance -run TestScoreboard -update")
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

// process is an entrant that runs.
type process struct {
	entrant
	t      *testing.T
	folder string

	mu      sync.Mutex
	command *exec.Cmd
	ended   chan struct{}
}

func (p *process) endpoint() string { return "unix://" + filepath.Join(p.folder, "kms.sock") }

func (p *process) target() conformance.Target {
	files := func(change func(string) error) func(context.Context) error {
		if change == nil {
			return nil
		}
		return func(context.Context) error { return change(p.folder) }
	}
	target := conformance.Target{
		Endpoint: p.endpoint(), Rotate: files(p.rotate), Break: files(p.breakIt), Mend: files(p.mend),
		Restart: p.restart, Second: p.second, Terminate: p.signal(syscall.SIGTERM), Kill: p.signal(syscall.SIGKILL),
		Log: func() ([]byte, error) { return os.ReadFile(filepath.Join(p.folder, "log")) },
	}
	if p.recreate != nil {
		target.Recreate = func(ctx context.Context) error {
			p.end()
			return errors.Join(p.entrant.recreate(p.folder), p.start(ctx))
		}
	}
	return target
}

// program is the process of an entrant, to be started.
func (p *process) program(ctx context.Context) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(p.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, self, "-test.run=^TestServeAnEntrant$")
	command.Env = append(os.Environ(), entrantName+"="+p.name, entrantFolder+"="+p.folder)
	command.Stdout, command.Stderr = log, log
	return command, nil
}

// start returns when the plugin listens, or has ended.
func (p *process) start(context.Context) error {
	command, err := p.program(context.Background())
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
func (p *process) end() {
	_ = p.signal(syscall.SIGTERM)(context.Background())
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		p.t.Error("it does not end")
		_ = p.signal(syscall.SIGKILL)(context.Background())
		<-p.ended
	}
}

func (p *process) restart(ctx context.Context) error {
	p.end()
	return p.start(ctx)
}

func (p *process) signal(signal os.Signal) func(context.Context) error {
	return func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.command.Process.Signal(signal)
	}
}

// second starts another on the same socket, which ends with ctx.
func (p *process) second(ctx context.Context) error {
	command, err := p.program(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", conformance.ErrNotRun, err)
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("%w: %w", conformance.ErrNotRun, err)
	}
	return command.Wait()
}
