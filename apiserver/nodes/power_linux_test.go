package nodes

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/stretchr/testify/require"
)

// powerCut ends everything at one moment, and starts it again: on the first machine in the right order,
// on the others the apiserver before the node. All leave their sockets behind. The last one has lost what
// was in memory, and the folder of its bundles, as when it booted anew.
func (f *fleet) powerCut() {
	f.t.Helper()
	f.t.Log("a power cut of all")
	over := f.load.Outage("")
	for _, m := range f.machines {
		m.node.Kill()
		m.api.Kill()
	}
	f.etcd.Kill()
	former := map[*machine][]instance{}
	for _, m := range f.machines {
		former[m] = m.instances()
		require.NotEmpty(f.t, former[m], m.name)
		for _, i := range former[m] {
			m.kill(i)
			m.until("the plugin is gone", func() bool { return !m.lives(i) })
			require.FileExists(f.t, i.Socket, "a socket that nobody listens at")
		}
	}
	last := f.machines[len(f.machines)-1]
	require.NoError(f.t, os.RemoveAll(last.run()))
	require.NoError(f.t, os.RemoveAll(last.bundles()))

	f.etcd.Restart()
	f.machines[0].node.Restart()
	for _, m := range f.machines {
		m.api.Restart()
	}
	for _, m := range f.machines[1:] {
		m.until("the apiserver answers without its plugin", func() bool { return m.status() != nil })
		require.False(f.t, m.ready(), "%s is ready without a plugin", m.name)
		m.node.Restart()
	}
	f.killAsItStarts(f.machines[1], former[f.machines[1]])
	last.until("the last good bundle is in effect", func() bool {
		r := last.report()
		return r != nil && r.InEffect != nil && r.InEffect.Revision == f.revision && f.areWell(last, r) && f.follows(last)
	})
	f.give(f.asks) // the folder is there again
	f.settled()
	f.until("the apiserver has what was written", f.current)
	over()
	f.load.More(f.t, 20)
}

// killAsItStarts ends a node that has begun to start a plugin, which may be there or not.
func (f *fleet) killAsItStarts(m *machine, former []instance) {
	f.t.Helper()
	known := map[string]bool{}
	for _, i := range former {
		known[i.Folder] = true
	}
	m.until("the node begins to start a plugin", func() bool {
		all, err := filepath.Glob(filepath.Join(m.run(), "instances", "*"))
		require.NoError(f.t, err)
		return slices.ContainsFunc(all, func(folder string) bool { return !known[folder] })
	})
	m.node.Kill()
	m.node.Restart()
}
