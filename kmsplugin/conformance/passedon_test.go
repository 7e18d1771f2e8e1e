package conformance_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/conformance"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// passedOn is a plugin of the kit on a socket that somebody else has bound, as systemd does.
type passedOn struct {
	t     *testing.T
	bound *net.UnixListener // of who starts it
	path  string
	file  *keyfile.File
}

func newPassedOn(t *testing.T) *passedOn {
	path := plugintest.Endpoint(t)[len("unix://"):]
	bound, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bound.Close()) })
	require.NoError(t, os.Chmod(path, 0o600))
	p := &passedOn{t: t, bound: bound, path: path, file: keyfile.At(filepath.Join(plugintest.Folder(t), "k.json"))}
	_, err = p.file.Create(t.Context())
	require.NoError(t, err)
	return p
}

// start has one serve, until end is called; ended is closed when it has.
func (p *passedOn) start() (end func(), ended chan struct{}) {
	descriptor, err := p.bound.File()
	require.NoError(p.t, err)
	defer descriptor.Close()
	own, err := net.FileListener(descriptor)
	require.NoError(p.t, err)
	keeper, err := kmsplugin.NewKeeper(p.file, keyfile.Config())
	require.NoError(p.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stop := keeper.Start(ctx)
	server, err := kmsplugin.Listen(ctx, "unix://"+p.path, keeper, kmsplugin.WithListener(own.(*net.UnixListener)))
	require.NoError(p.t, err)
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(ctx)
		_ = stop()
	}()
	return cancel, ended
}

// It finishes its calls, and calls that come meanwhile wait in the socket for the next one, or are
// answered by it.
func TestAPluginOnASocketThatWasPassedOnDrains(t *testing.T) {
	for name, replaced := range map[string]bool{"nobody takes its place": false, "the next one serves already": true} {
		t.Run(name, func(t *testing.T) {
			p := newPassedOn(t)
			end, ended := p.start()
			defer func() { end(); <-ended }()
			options := fast()
			options.Only = []string{"sigterm-drains"}
			before := ended
			report, err := conformance.Run(t.Context(), conformance.Target{
				Endpoint: "unix://" + p.path,
				Terminate: func(context.Context) error {
					end()
					if replaced {
						end, ended = p.start()
					}
					return nil
				},
				Restart: func(context.Context) error {
					<-before
					if !replaced {
						end, ended = p.start()
					}
					return nil
				},
			}, options)
			require.NoError(t, err)
			require.Equal(t, conformance.Passed, report.Results[0].Outcome, report.Results[0])
		})
	}
}

// A file that somebody listens at is not left: who bound it would not do so again. Nor is one known to be that cannot
// be looked at any more, for somebody who interrupts.
func TestTheFileOfASocketThatIsPassedOnIsNotRemoved(t *testing.T) {
	for name, interruptedIn := range map[string]int{"each restart fails": 0, "the second is interrupted": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPassedOn(t)
			end, ended := p.start()
			defer end()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			restarts := 0
			report, err := conformance.Run(ctx, conformance.Target{
				Endpoint: "unix://" + p.path,
				Kill:     func(context.Context) error { end(); <-ended; return nil },
				Restart: func(context.Context) error {
					if restarts++; restarts == interruptedIn {
						cancel()
					}
					return errors.New("start request repeated too quickly")
				},
			}, conformance.Options{Only: []string{"stale-socket-replaced"}, Interval: time.Second, Timeout: time.Second})
			require.NoError(t, err)
			require.Equal(t, conformance.Unknown, report.Results[0].Outcome, report.Results[0])
			require.LessOrEqual(t, restarts, 2)
			require.FileExists(t, p.path)
		})
	}
}
