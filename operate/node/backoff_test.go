package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// short is a runner whose instances end by themselves after a time.
type short struct {
	clk     *testingclock.FakeClock
	lasts   time.Duration
	fails   error
	started []time.Time
}

func (r *short) Start(Spec) error {
	r.started = append(r.started, r.clk.Now())
	return r.fails
}
func (r *short) Runs(Spec) (bool, error) {
	return r.fails == nil && r.clk.Since(r.started[len(r.started)-1]) < r.lasts, nil
}
func (r *short) Proves(Spec, *net.UnixConn) error { return errors.New("nobody listens") }
func (r *short) Stop(Spec, bool) error            { return nil }
func (r *short) Clear(Spec) error                 { return nil }

// gaps are the times between the starts of one plugin in a node that goes round again and again for so long.
func gaps(t *testing.T, r *short, long time.Duration) []time.Duration {
	t.Helper()
	folder, err := os.MkdirTemp("", "b")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n" +
		"  - kms: {apiVersion: v2, name: \"1_secrets\", endpoint: \"unix://" + folder + "/kms/kms-1.sock\"}\n  - identity: {}\n"
	b, err := bundle.New(bundle.Draft{Revision: 1, EncryptionConfig: []byte(config), Plugins: []bundle.DraftPlugin{{KeyID: 1,
		Settings: []byte(fmt.Sprintf("apiVersion: %s\nkind: %s\nkeyFile: {path: /nothing.json}\n", bundle.APIVersion, bundle.SettingsKind))}}})
	require.NoError(t, err)
	require.NoError(t, b.WriteFolder(folder+"/bundle"))
	n, err := New(Options{Bundles: folder + "/bundle", State: folder + "/state", Run: folder + "/run", ConfigFile: folder + "/config.yaml",
		Runner: r, Clock: r.clk, Log: func(string) {}, Every: time.Second, AskEvery: time.Hour, Timeout: time.Second, Patience: time.Second})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for end := r.clk.Now().Add(long); r.clk.Now().Before(end); r.clk.Step(500 * time.Millisecond) {
		for range 3 { // what was started, has ended and is cleared
			n.round(ctx)
		}
	}
	for _, one := range n.own {
		one.asks.end()
	}
	require.NoError(t, n.lock.Release())
	var all []time.Duration
	for i := range r.started[1:] {
		all = append(all, r.started[i+1].Sub(r.started[i]))
	}
	return all
}

func inSeconds(all ...int) (s []time.Duration) {
	for _, n := range all {
		s = append(s, time.Duration(n)*time.Second)
	}
	return s
}

func TestAPluginThatEndsIsStartedAgainEverMoreSeldom(t *testing.T) {
	want := inSeconds(1, 2, 4, 8, 16, 32, 60, 60)
	clk := func() *testingclock.FakeClock { return testingclock.NewFakeClock(time.Unix(1e9, 0)) }
	require.Equal(t, want, gaps(t, &short{clk: clk()}, 200*time.Second))
	require.Equal(t, want, gaps(t, &short{clk: clk(), fails: errors.New("it cannot be started")}, 200*time.Second), "and so is one that cannot be started")
}

// One that lasted is not known to be broken. What ends a little earlier has the pauses of its kind.
func TestAPluginThatLastedIsStartedAgainAtOnce(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	require.Equal(t, inSeconds(300, 300, 300), gaps(t, &short{clk: clk, lasts: lasted}, 950*time.Second))

	r := &short{clk: testingclock.NewFakeClock(time.Unix(1e9, 0)), lasts: 3 * time.Second}
	require.Equal(t, inSeconds(3, 3, 4, 8, 16), gaps(t, r, 40*time.Second), "a pause runs from the start on")
}
