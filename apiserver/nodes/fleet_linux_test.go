package nodes

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/node"
)

// fleet is the nodes of one cluster, and what goes on there.
type fleet struct {
	t        *testing.T
	member   etcd.Options
	etcd     *harness.Process
	machines []*machine
	load     *traffic.Load
	// revision is that of the bundle that was given last, and wish what is to be in effect.
	revision uint64
	wish     wish
	asks     asks
	writer   bundle.KeyID // that is killed where a plugin is
	// step is how many steps there were, and turn with which kind of process their kills begin.
	step, turn int
}

// wish is what a bundle asks for: plugins in the order of the configuration, of which the first
// writes.
type wish []bundle.DraftPlugin

// asks makes a wish of what back ends have for a plugin at the moment.
type asks func() wish

// of are these plugins, in this order.
func of(plugins ...func() bundle.DraftPlugin) asks {
	return func() (w wish) {
		for _, plugin := range plugins {
			w = append(w, plugin())
		}
		return w
	}
}

// startFleet runs nodes on which the first plugin writes.
func startFleet(t *testing.T, count int, a asks) *fleet {
	t.Helper()
	harness.Atrest(t) // built before there is any load
	harness.KMSPlugin(t)
	member := etcd.Options{DataDir: t.TempDir(), SocketDir: harness.SocketDir(t)}
	f := &fleet{t: t, member: member, etcd: harness.Run(t, harness.EtcdMember, member.DataDir, member.SocketDir)}
	for i := range count {
		f.machines = append(f.machines, newMachine(t, fmt.Sprintf("cp-%d", i+1), member))
	}
	f.give(a)
	for _, m := range f.machines {
		m.startNode()
	}
	t.Cleanup(func() { // before they end
		if t.Failed() {
			for _, m := range f.machines {
				t.Log(m.told())
			}
		}
	})
	f.until("the configuration file is in place", func(m *machine) bool { _, err := os.Stat(m.config()); return err == nil })
	for _, m := range f.machines {
		m.startAPI()
	}
	f.settled()
	var all []traffic.Apiserver
	for _, m := range f.machines {
		all = append(all, traffic.Apiserver{Name: m.name, Config: m.api.Config})
	}
	f.load = traffic.Start(t, *objects, all...)
	return f
}

// give puts a bundle into the folder of each node.
func (f *fleet) give(a asks) {
	f.t.Helper()
	f.revision++
	w := a()
	f.asks, f.wish, f.writer = a, w, w[0].KeyID
	for _, m := range f.machines {
		b, err := bundle.New(bundle.Draft{Revision: f.revision, EncryptionConfig: []byte(w.config(m.sockets())), Plugins: w})
		require.NoError(f.t, err)
		require.NoError(f.t, b.WriteFolder(m.bundles()))
	}
}

// config is the EncryptionConfiguration for the sockets in a folder.
func (w wish) config(sockets string) string {
	var all []string
	for _, p := range w {
		all = append(all, fmt.Sprintf("kms: {apiVersion: v2, name: %q, endpoint: %q, timeout: 3s}", providerOf(p.KeyID), "unix://"+sockets+"/"+p.KeyID.Socket()))
	}
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" +
		harness.Entry("secrets", append(all, harness.Identity)...)
}

// providerOf is the name under which the plugin of a keyID is in the configuration.
func providerOf(keyID bundle.KeyID) string { return keyID.String() + "_secrets" }

// settled returns when each node has made what the bundle asks for so, and its apiserver has it in
// effect.
func (f *fleet) settled() {
	f.t.Helper()
	f.until(fmt.Sprintf("revision %d is in effect", f.revision), f.isSettled)
}

func (f *fleet) isSettled(m *machine) bool {
	r := m.report()
	return r != nil && r.InEffect != nil && r.InEffect.Revision == f.revision && len(r.Waits) == 0 && len(r.Problems) == 0 &&
		len(r.Plugins) == len(f.wish) && f.areWell(m, r) && f.follows(m)
}

// areWell reports whether the plugins of all keyIDs that are to be in effect are.
func (f *fleet) areWell(m *machine, r *node.Report) bool {
	there := 0
	for _, p := range r.Plugins {
		if p.Well && p.Linked && slices.ContainsFunc(f.wish, func(w bundle.DraftPlugin) bool { return w.KeyID.String() == p.KeyID }) {
			there++
		}
	}
	return there == len(f.wish)
}

// follows reports whether the apiserver has the file of the bundle in effect, with all that it names.
func (f *fleet) follows(m *machine) bool {
	s := m.status()
	if s == nil || s.ConfigHash != hashed.Name([]byte(f.wish.config(m.sockets()))) || len(s.Providers) != len(f.wish) {
		return false
	}
	for _, p := range s.Providers {
		if !p.Ready() {
			return false
		}
	}
	return m.ready()
}

// until waits for what has to become true of each machine.
func (f *fleet) until(what string, condition func(*machine) bool) {
	f.t.Helper()
	for _, m := range f.machines {
		m.until(what, func() bool { return condition(m) })
	}
}

const (
	// patience bounds each wait: it is many times what a busy machine needs.
	patience = 3 * time.Minute
	// pause is the time between two looks.
	pause = 50 * time.Millisecond
)

// until waits for what has to become true.
func (m *machine) until(what string, condition func() bool) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	looks := time.NewTicker(pause)
	defer looks.Stop()
	for !condition() {
		select {
		case <-looks.C:
		case <-ctx.Done():
			require.FailNow(m.t, fmt.Sprintf("%s: it did not come true that %s", m.name, what))
		}
	}
}
