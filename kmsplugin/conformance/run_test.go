package conformance_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/kmsplugin/conformance"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

func outcomes(r *conformance.Report) map[string]conformance.Outcome {
	all := map[string]conformance.Outcome{}
	for _, result := range r.Results {
		all[result.ID] = result.Outcome
	}
	return all
}

func TestEachCheckSaysWhatItIs(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range conformance.Checks() {
		require.Regexp(t, `^[a-z0-9]+(-[a-z0-9]+)*$`, c.ID)
		require.False(t, seen[c.ID], c.ID)
		seen[c.ID] = true
		require.Regexp(t, `^[A-Z0-9].*\.$`, c.Says)
		require.Regexp(t, `^[a-z].*\.$`, c.Suffers)
		require.NotEmpty(t, c.Source)
	}
}

func TestWhatCannotBeRunIsAnError(t *testing.T) {
	p := faultplugin.StartKMS(t)
	nothing := func(context.Context) error { return nil }
	for name, test := range map[string]struct {
		target conformance.Target
		only   string
		says   string
	}{
		"nobody listens":        {conformance.Target{Endpoint: plugintest.Endpoint(t)}, "", "start the plugin, or correct the path"},
		"another protocol":      {conformance.Target{Endpoint: "tcp://localhost:1"}, "", "write unix:///path/to/plugin.sock"},
		"two slashes":           {conformance.Target{Endpoint: "unix://run/kms.sock"}, "", "write unix:///path/to/plugin.sock"},
		"no such check":         {conformance.Target{Endpoint: p.Endpoint()}, "nosuch", `no check "nosuch": there are status-version,`},
		"broken and not mended": {conformance.Target{Endpoint: p.Endpoint(), Break: nothing}, "", "break and mend go together"},
	} {
		t.Run(name, func(t *testing.T) {
			options := conformance.Options{}
			if test.only != "" {
				options.Only = []string{test.only}
			}
			_, err := conformance.Run(t.Context(), test.target, options)
			require.ErrorContains(t, err, test.says)
		})
	}
}

// With nothing but a socket most checks are tried, and none of the others is passed.
func TestWhatIsNotHadIsNotTried(t *testing.T) {
	var each []conformance.Result
	options := fast()
	options.Each = func(r conformance.Result) { each = append(each, r) }
	report, err := conformance.Run(t.Context(), conformance.Target{Endpoint: faultplugin.StartKMS(t).Endpoint()}, options)
	require.NoError(t, err)
	require.Len(t, each, len(report.Results))
	require.Len(t, report.Results, len(conformance.Checks()))
	for _, result := range report.Results {
		want := conformance.Passed
		if result.Needs != nil {
			want = conformance.NotTried
			require.Equal(t, result.Needs, result.Missing)
		}
		require.Equal(t, want, result.Outcome, result)
	}
}

// Nothing is passed of a plugin that does nothing, but what does not depend on it.
func TestAPluginThatRefusesAllPassesNothing(t *testing.T) {
	p := faultplugin.Start(t)
	refuses := status.Error(codes.Unavailable, "the KMS is away")
	p.Set(func(b *faultplugin.Behaviour) { b.StatusErr, b.EncryptErr, b.DecryptErr = refuses, refuses, refuses })
	done := func(context.Context) error { return nil }
	report, err := conformance.Run(t.Context(), conformance.Target{
		Endpoint: p.Endpoint(), Rotate: done, Break: done, Mend: done, Recreate: done, Restart: done,
		Kill: done, Terminate: done, Second: done, Log: func() ([]byte, error) { return []byte("up"), nil },
	}, conformance.Options{Clock: newHurried()})
	require.NoError(t, err)
	for _, result := range report.Results {
		switch result.ID {
		case "socket-mode", "errors-hold-no-key":
			require.Equal(t, conformance.Passed, result.Outcome, result)
		case "sigterm-drains": // it goes on serving
			require.Equal(t, conformance.Failed, result.Outcome, result)
		default:
			require.Equal(t, conformance.Unknown, result.Outcome, result)
		}
	}
}

// Commands that do nothing make nothing known.
func TestWhatWasNotDoneIsNotPassed(t *testing.T) {
	p := faultplugin.StartKMS(t)
	done := func(context.Context) error { return nil }
	report, err := conformance.Run(t.Context(), conformance.Target{
		Endpoint: p.Endpoint(), Rotate: done, Break: done, Mend: done, Recreate: done, Restart: done,
		Kill: done, Terminate: done, Second: done, Log: func() ([]byte, error) { return nil, nil },
	}, conformance.Options{Timeout: time.Second, Clock: newHurried(), Only: []string{
		"rotation-shows", "labels-agree-in-rotation", "old-keys-open", "trouble-shows", "trouble-is-an-error", "trouble-class", "deadline-kept", "trouble-ends",
		"key-id-after-restart", "key-id-not-reused", "live-socket-stays", "sigterm-drains", "stale-socket-replaced", "log-holds-no-key",
	}})
	require.NoError(t, err)
	require.Len(t, report.Results, 14)
	for _, result := range report.Results {
		require.Contains(t, []conformance.Outcome{conformance.Failed, conformance.Unknown}, result.Outcome, result)
	}
}

// A command that does something else than it has to makes nothing known either.
func TestWhatWasDoneInstead(t *testing.T) {
	for name, test := range map[string]struct {
		instead func(*faultplugin.KMS, *conformance.Target)
		ids     []string
	}{
		"the key is rotated and not made anew": {func(p *faultplugin.KMS, target *conformance.Target) {
			target.Recreate = p.Rotate
		}, []string{"key-id-not-reused"}},
		"the log is another's": {func(_ *faultplugin.KMS, target *conformance.Target) {
			target.Log = func() ([]byte, error) { return []byte("x\n"), nil }
		}, []string{"log-holds-no-key"}},
		"the plugin is killed and not its KMS": {func(p *faultplugin.KMS, target *conformance.Target) {
			target.Break, target.Mend = p.Kill, p.Restart
		}, []string{"trouble-shows", "trouble-is-an-error", "trouble-class", "trouble-ends"}},
		"it is killed while it is asked": {func(p *faultplugin.KMS, target *conformance.Target) {
			target.Break, target.Mend = p.KillWhenAsked, p.Restart
		}, []string{"trouble-shows", "trouble-is-an-error", "trouble-class", "trouble-ends"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := faultplugin.StartKMS(t)
			target, options := everything(p), fast()
			test.instead(p, &target)
			options.Only = append(test.ids, "round-trip")
			report, err := conformance.Run(t.Context(), target, options)
			require.NoError(t, err)
			require.Equal(t, 1, report.Count(conformance.Passed), report.Results)
			require.Equal(t, len(test.ids), report.Count(conformance.Unknown), report.Results)
		})
	}
}

// Where no file of the killed plugin is in the way there is nothing to be replaced.
func TestASocketFileThatIsNotLeftIsNotReplaced(t *testing.T) {
	for name, instead := range map[string]func(t *testing.T, path string){
		"it is removed": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"it is another's": func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".old"))
			other, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			require.NoError(t, err)
			other.SetUnlinkOnClose(false)
			require.NoError(t, other.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := faultplugin.StartKMS(t)
			target, options := everything(p), patient()
			target.Kill = func(ctx context.Context) error {
				err := p.Kill(ctx)
				instead(t, p.Endpoint()[len("unix://"):])
				return err
			}
			options.Only = []string{"stale-socket-replaced"}
			report, err := conformance.Run(t.Context(), target, options)
			require.NoError(t, err)
			require.Equal(t, conformance.NotTried, report.Results[0].Outcome, report.Results[0])
			require.Contains(t, report.Results[0].Why, "was not there any more")
		})
	}
}

// Who may connect to a socket, or put another in its place, may do so where it is, wherever a link to it is.
func TestALinkKeepsNobodyFromASocket(t *testing.T) {
	for _, flaw := range []faultplugin.Flaw{faultplugin.OpenToAll, faultplugin.OpenFolder} {
		p := faultplugin.StartKMS(t, flaw)
		folder, err := os.MkdirTemp("", "link") // which nobody else may go into
		require.NoError(t, err)
		defer os.RemoveAll(folder)
		require.NoError(t, os.Symlink(p.Endpoint()[len("unix://"):], folder+"/kms.sock"))
		report, err := conformance.Run(t.Context(), conformance.Target{Endpoint: "unix://" + folder + "/kms.sock"}, conformance.Options{Only: []string{"socket-mode"}})
		require.NoError(t, err)
		require.Equal(t, conformance.Failed, report.Results[0].Outcome, flaw)
	}
}

// A link at the endpoint, as a node has, outlives the socket that it stands for.
func TestALinkThatIsLeftIsNoSocketFile(t *testing.T) {
	t.Parallel()
	p := faultplugin.StartKMS(t)
	path := p.Endpoint()[len("unix://"):]
	require.NoError(t, os.Symlink(path, path+".link"))
	target, options := everything(p), patient()
	target.Endpoint += ".link"
	target.Kill = func(ctx context.Context) error { return errors.Join(p.Kill(ctx), os.Remove(path)) }
	options.Only = []string{"stale-socket-replaced"}
	report, err := conformance.Run(t.Context(), target, options)
	require.NoError(t, err)
	require.Equal(t, conformance.NotTried, report.Results[0].Outcome, report.Results[0])
}

func TestWhatLooksBackNeedsSomethingToLookAt(t *testing.T) {
	p := faultplugin.StartKMS(t)
	report, err := conformance.Run(t.Context(), conformance.Target{Endpoint: p.Endpoint(), Log: func() ([]byte, error) { return []byte("up"), nil }},
		conformance.Options{Only: []string{"errors-hold-no-key", "log-holds-no-key"}})
	require.NoError(t, err)
	require.Equal(t, 2, report.Count(conformance.Unknown), report.Results)
}

// What is broken is mended: where break itself fails, and where somebody interrupts.
func TestWhatIsBrokenIsMended(t *testing.T) {
	for name, breaks := range map[string]func(cancel func()) error{
		"break fails":    func(func()) error { return errors.New("no such unit") },
		"it interrupted": func(cancel func()) error { cancel(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			p := faultplugin.StartKMS(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			mended := 0
			target := everything(p)
			target.Break = func(context.Context) error { return breaks(cancel) }
			target.Mend = func(ctx context.Context) error {
				_, bounded := ctx.Deadline()
				require.False(t, bounded, "it takes as long as it takes")
				mended++
				return ctx.Err()
			}
			options := fast()
			options.Only = []string{"trouble-shows", "trouble-ends", "socket-mode"}
			report, err := conformance.Run(ctx, target, options)
			require.NoError(t, err)
			require.Equal(t, 1, mended)
			require.Equal(t, conformance.Unknown, outcomes(report)["trouble-shows"])
			require.Equal(t, conformance.Unknown, outcomes(report)["trouble-ends"])
		})
	}
}

func TestWhatWasInterruptedIsUnknown(t *testing.T) {
	p := faultplugin.StartKMS(t)
	ctx, cancel := context.WithCancel(t.Context())
	target := everything(p)
	target.Rotate = func(ctx context.Context) error { cancel(); return ctx.Err() }
	report, err := conformance.Run(ctx, target, fast())
	require.NoError(t, err)
	after := false
	for _, result := range report.Results {
		after = after || result.ID == "rotation-shows"
		if after && result.ID != "errors-hold-no-key" && result.ID != "log-holds-no-key" {
			require.Equal(t, conformance.Unknown, result.Outcome, result)
		}
	}
}

// What was ended is started again, and once, though somebody interrupts, and that is nobody's failure.
func TestWhatIsEndedIsStartedThoughItIsInterrupted(t *testing.T) {
	for _, id := range []string{"sigterm-drains", "stale-socket-replaced"} {
		for _, when := range []string{"while it ends", "while it starts"} {
			t.Run(id+", "+when, func(t *testing.T) {
				p := faultplugin.StartKMS(t)
				ctx, cancel := context.WithCancel(t.Context())
				ends, restarts := func() {}, 0
				if when == "while it ends" {
					ends = cancel
				}
				target := everything(p)
				target.Terminate = func(context.Context) error { defer ends(); return p.Terminate(t.Context()) }
				target.Kill = func(context.Context) error { defer ends(); return p.Kill(t.Context()) }
				target.Restart = func(ctx context.Context) error {
					restarts++
					cancel()
					return errors.Join(ctx.Err(), p.Restart(t.Context()))
				}
				options := fast()
				options.Only = []string{id}
				report, err := conformance.Run(ctx, target, options)
				require.NoError(t, err)
				require.Equal(t, conformance.Unknown, report.Results[0].Outcome, report.Results[0])
				require.Equal(t, 1, restarts)
				options.Only = []string{"status-version"}
				report, err = conformance.Run(t.Context(), target, options)
				require.NoError(t, err, "it runs")
				require.Equal(t, 1, report.Count(conformance.Passed))
			})
		}
	}
}

// Nor is a key left deleted and not made again.
func TestAKeyIsMadeAgainThoughItIsInterrupted(t *testing.T) {
	p := faultplugin.StartKMS(t)
	ctx, cancel := context.WithCancel(t.Context())
	target := everything(p)
	made := false
	target.Recreate = func(ctx context.Context) error {
		cancel()
		made = ctx.Err() == nil
		return p.Recreate(ctx)
	}
	options := fast()
	options.Only = []string{"key-id-not-reused"}
	report, err := conformance.Run(ctx, target, options)
	require.NoError(t, err)
	require.True(t, made)
	require.Equal(t, 1, report.Count(conformance.Unknown))
}

// A plugin that dies is waited for once, and nothing is passed after that.
func TestAPluginThatDiesIsUnknownFromThenOn(t *testing.T) {
	p := faultplugin.StartKMS(t)
	target := conformance.Target{Endpoint: p.Endpoint(), Rotate: p.Kill}
	options := fast()
	options.Timeout = time.Second
	options.Only = []string{"status-version", "rotation-shows", "socket-mode"}
	report, err := conformance.Run(t.Context(), target, options)
	require.NoError(t, err)
	require.Equal(t, map[string]conformance.Outcome{"status-version": conformance.Passed, "rotation-shows": conformance.Unknown, "socket-mode": conformance.Unknown}, outcomes(report))
	require.Contains(t, report.Results[2].Why, "the plugin is not there any more")
}

// One that takes connections and says nothing costs a run seconds, not minutes.
func TestAPluginThatIsSilentIsUnknown(t *testing.T) {
	endpoint := plugintest.Endpoint(t)
	silent, err := net.Listen("unix", endpoint[len("unix://"):])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, silent.Close()) })
	report, err := conformance.Run(t.Context(), conformance.Target{Endpoint: endpoint}, conformance.Options{Timeout: time.Second})
	require.NoError(t, err)
	require.Zero(t, report.Count(conformance.Passed)+report.Count(conformance.Failed), report.Results)
	require.Contains(t, report.Results[0].Why, "accepts connections, and has not answered Status within")
}

func TestNoResultHoldsAKey(t *testing.T) {
	p := faultplugin.StartKMS(t, faultplugin.KeyInError)
	target := everything(p)
	require.NoError(t, p.Break(t.Context()))
	options := fast()
	options.Only = []string{"round-trip", "ciphertext-size", "errors-hold-no-key"}
	report, err := conformance.Run(t.Context(), target, options)
	require.NoError(t, err)
	require.Contains(t, report.Results[1].Why, "a text that holds a key, which is left out here")
	require.Equal(t, conformance.Failed, report.Results[2].Outcome)
}

// A restart that brings the plugin back neither beside the socket file nor without it, or late, says nothing
// of who replaces the file.
func TestARestartThatFailsIsNotTheSocketFiles(t *testing.T) {
	for name, fails := range map[string]int{"for ever": 3, "once": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := faultplugin.StartKMS(t)
			target, options := everything(p), fast()
			left := fails
			target.Restart = func(ctx context.Context) error {
				if left--; left >= 0 {
					return errors.New("start request repeated too quickly")
				}
				return p.Restart(ctx)
			}
			options.Only = []string{"stale-socket-replaced"}
			report, err := conformance.Run(t.Context(), target, options)
			require.NoError(t, err)
			require.Equal(t, conformance.Unknown, report.Results[0].Outcome, report.Results[0])
			require.Contains(t, report.Results[0].Why, "too quickly")
		})
	}
}
