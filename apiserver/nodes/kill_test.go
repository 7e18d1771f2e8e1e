package nodes

import (
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/node"
)

// kind is what is killed.
type kind string

const (
	aNode       kind = "node"
	aPlugin     kind = "plugin"
	anAPIServer kind = "apiserver"
)

// kinds are those that are killed, one after the other, on one machine after the other.
var kinds = []kind{aNode, aPlugin, anAPIServer}

// victim is what is killed at the step that is next.
func (f *fleet) victim() (kind, *machine) {
	return kinds[(f.step+f.turn)%len(kinds)], f.machines[(f.step+f.step/len(kinds))%len(f.machines)]
}

// underFire is a step: something is done while somebody is killed as by kill -9, in the middle of
// whatever it does. No request may fail but through an apiserver that is killed, and no other
// plugin than the one that is killed is started anew, unless others are wanted.
func (f *fleet) underFire(what string, do func()) {
	f.t.Helper()
	killed, on := f.victim()
	f.t.Logf("%s %s; kill -9: %s of %s", time.Now().Format(time.TimeOnly), what, killed, on.name)
	refused := len(f.load.Refused())
	over := f.strike(killed, on)
	do()
	over()
	f.until("the apiserver has what was written", f.current)
	f.load.More(f.t, 10)
	if killed != anAPIServer {
		on = nil
	}
	f.requireRefusedBy(on, refused)
	f.step++
}

// requireRefusedBy requires that since so many refusals nobody but a machine's apiserver, or nobody if
// that is nil, has refused anything, which client-go may have asked again by itself.
func (f *fleet) requireRefusedBy(m *machine, since int) {
	f.t.Helper()
	for _, r := range f.load.Refused()[since:] {
		require.True(f.t, m != nil && r.Apiserver == m.name, "%s refused %s", r.Apiserver, r.What)
	}
}

// strike ends a process, and starts again what nobody else does. It returns what waits until who
// needed it is well again.
func (f *fleet) strike(what kind, m *machine) (over func()) {
	f.t.Helper()
	switch what {
	case aNode:
		m.node.Kill()
		m.node.Restart()
	case aPlugin:
		return f.killPlugin(m, f.writer)
	case anAPIServer:
		over := f.load.Outage(m.name)
		m.api.Kill()
		m.api.Restart()
		return func() {
			f.t.Helper()
			m.until("the apiserver has what was written", func() bool { return m.ready() && f.current(m) })
			over()
		}
	}
	return func() {}
}

// killPlugin ends the plugin of a keyID, which the node starts anew. What is returned waits for that.
func (f *fleet) killPlugin(m *machine, keyID bundle.KeyID) (over func()) {
	f.t.Helper()
	i, ok := m.plugin(keyID)
	require.True(f.t, ok, "%s has no plugin of keyID %s", m.name, keyID)
	m.kill(i)
	killed := time.Now()
	return func() {
		f.t.Helper()
		m.until("another plugin has its place", func() bool {
			next, ok := m.plugin(keyID)
			return ok && next.Instance != i.Instance && m.isWell(next)
		})
		f.t.Logf("it is back within %s", time.Since(killed).Round(pause))
	}
}

// isWell reports whether the node has found an instance to be well.
func (m *machine) isWell(i instance) bool {
	r := m.report()
	return r != nil && slices.ContainsFunc(r.Plugins, func(p node.PluginReport) bool { return p.Instance == i.Instance && p.Well })
}

// current reports whether an apiserver has all that was written, and knows the data keys.
func (f *fleet) current(m *machine) bool { return f.load.Current(f.t.Context(), m.name) == nil }

// inPlace is a step in which no plugin is started anew but the one that is killed.
func (f *fleet) inPlace(what string, do func()) {
	f.t.Helper()
	killed, on := f.victim()
	before := map[string]map[bundle.KeyID]int{}
	for _, m := range f.machines {
		before[m.name] = m.pids()
	}
	f.underFire(what, do)
	for _, m := range f.machines {
		now := m.pids()
		if killed == aPlugin && m == on {
			require.Equal(f.t, slices.Sorted(maps.Keys(before[m.name])), slices.Sorted(maps.Keys(now)), m.name)
			continue
		}
		require.Equal(f.t, before[m.name], now, m.name)
	}
}
