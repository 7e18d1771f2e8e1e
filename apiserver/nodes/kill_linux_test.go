package nodes

import (
	"maps"
	"os"
	"path/filepath"
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
// whatever it does. No request may fail but through an apiserver that is killed.
func (f *fleet) underFire(what string, do func()) {
	f.t.Helper()
	killed, on := f.victim()
	f.t.Logf("%s %s; kill -9: %s of %s", time.Now().Format(time.TimeOnly), what, killed, on.name)
	refused := len(f.load.Refused())
	over := f.strike(killed, on)
	do()
	excused := over()
	f.until("the apiserver has what was written", f.current)
	f.load.More(f.t, 10)
	f.requireRefusedBy(excused, refused)
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
// needed it is well again, and tells whose apiserver may have refused requests.
func (f *fleet) strike(what kind, m *machine) (over func() (excused *machine)) {
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
		return func() *machine {
			f.t.Helper()
			m.until("the apiserver has what was written", func() bool { return m.ready() && f.current(m) })
			over()
			return m
		}
	}
	return func() *machine { return nil }
}

// unnoticed is for how long a plugin may be away without a request that fails. Calls to it wait for a
// second more, which is for the rest of it on a busy machine.
const unnoticed = 500 * time.Millisecond

// killPlugin ends the plugin of a keyID, which the node starts anew. Its apiserver is excused if it was away
// for longer than calls can wait: then data keys that it has not seen cannot be had.
func (f *fleet) killPlugin(m *machine, keyID bundle.KeyID) (over func() (excused *machine)) {
	f.t.Helper()
	i, ok := m.plugin(keyID)
	require.True(f.t, ok, "%s has no plugin of keyID %s", m.name, keyID)
	outage := f.load.Outage(m.name)
	m.kill(i)
	away := m.untilReplaced(i, outage)
	return func() *machine {
		f.t.Helper()
		m.until("another plugin has its place", func() bool {
			next, ok := m.plugin(keyID)
			return ok && next.Instance != i.Instance && m.isWell(next)
		})
		took := <-away
		f.t.Logf("its plugin of keyID %s was away for %s", keyID, took.Round(time.Millisecond))
		if took < unnoticed {
			return nil
		}
		return m
	}
}

// untilReplaced measures how long it takes until apiservers reach another instance in the place of one, and
// calls back then.
func (m *machine) untilReplaced(i instance, back func()) <-chan time.Duration {
	from, took, ctx := time.Now(), make(chan time.Duration, 1), m.t.Context()
	name := filepath.Join(m.sockets(), "kms-"+i.KeyID+".sock")
	go func() {
		looks := time.NewTicker(5 * time.Millisecond)
		defer looks.Stop()
		for ctx.Err() == nil {
			if target, err := os.Readlink(name); err == nil && target != filepath.Base(i.Socket) {
				break
			}
			<-looks.C
		}
		back()
		took <- time.Since(from)
	}()
	return took
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
