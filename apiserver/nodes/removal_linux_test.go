package nodes

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// remove takes a keyID out of the bundle that writes no longer. Its plugin stays for an apiserver that is
// away, and is ended once that one told that it does without. What it had is overwritten.
func (f *fleet) remove(keyID bundle.KeyID) {
	f.t.Helper()
	away := f.machines[len(f.machines)-1]
	going := map[*machine]instance{}
	spies := map[string]string{}
	for _, m := range f.machines {
		i, ok := m.plugin(keyID)
		require.True(f.t, ok, m.name)
		going[m] = i
		m.spyOn(i, spies)
	}
	refused := len(f.load.Refused())
	over := f.load.Outage(away.name)
	away.api.Kill()
	former := f.asks
	f.give(func() wish {
		return slices.DeleteFunc(former(), func(p bundle.DraftPlugin) bool { return p.KeyID == keyID })
	})
	away.until("the plugin stays for an apiserver that is away", func() bool {
		r := away.report()
		return r != nil && r.InEffect != nil && r.InEffect.Revision == f.revision && strings.Contains(strings.Join(r.Waits, "\n"), "keyID "+keyID.String()+" stays")
	})
	going[away] = f.killedWhileItStays(away, keyID)
	for _, m := range f.machines {
		if m != away {
			m.until("the plugin is gone", func() bool { return f.endsInOrder(m, going[m], keyID) && f.isSettled(m) })
		}
	}
	require.True(f.t, away.lives(going[away]), "the plugin of an apiserver that did not tell")
	away.api.Restart()
	away.until("the plugin is gone", func() bool { return f.endsInOrder(away, going[away], keyID) && f.isSettled(away) })
	away.until("the apiserver has what was written", func() bool { return f.current(away) })
	over()
	for _, m := range f.machines {
		m.requireNothingOf(going[m])
	}
	for spy, what := range spies {
		content, err := os.ReadFile(spy)
		require.NoError(f.t, err)
		require.Zero(f.t, len(bytes.Trim(content, "\x00")), "%s is not overwritten", what) // which a failure must not show
	}
	f.load.More(f.t, 10)
	f.requireRefusedBy(away, refused)
}

// killedWhileItStays ends the plugin of a keyID that only a former bundle has, and then the node. The plugin
// is started again, and taken over.
func (f *fleet) killedWhileItStays(m *machine, keyID bundle.KeyID) instance {
	f.t.Helper()
	back := f.killPlugin(m, keyID)
	back()
	next, ok := m.plugin(keyID)
	require.True(f.t, ok)
	m.node.Kill()
	require.True(f.t, m.lives(next), "the plugin of a node that is gone")
	m.node.Restart()
	m.until("the node has taken it over", func() bool { return m.isWell(next) })
	return next
}

// endsInOrder reports whether an instance is gone, and fails if its apiserver has the provider still.
func (f *fleet) endsInOrder(m *machine, i instance, keyID bundle.KeyID) bool {
	f.t.Helper()
	if m.lives(i) {
		return false
	}
	if s := m.status(); s != nil { // which was told afterwards
		for _, p := range s.Providers {
			require.NotContains(f.t, p.Names, providerOf(keyID), "%s has it, and its plugin has ended", m.name)
		}
	}
	return true
}

// spyOn notes other names for the files of an instance, by which their content is seen when they are
// removed.
func (m *machine) spyOn(i instance, spies map[string]string) {
	m.t.Helper()
	files, err := filepath.EvalSymlinks(i.Files())
	require.NoError(m.t, err)
	entries, err := os.ReadDir(files)
	require.NoError(m.t, err)
	for _, e := range entries {
		spy := m.in("spy-" + i.Instance + "-" + e.Name())
		require.NoError(m.t, os.Link(filepath.Join(files, e.Name()), spy))
		spies[spy] = m.name + ": " + e.Name()
	}
}

// requireNothingOf requires that nothing is left of an instance.
func (m *machine) requireNothingOf(i instance) {
	m.t.Helper()
	require.NoDirExists(m.t, i.Folder)
	for _, left := range []string{"kms-" + i.KeyID + ".sock", "kms-" + i.KeyID + ".*"} {
		found, err := filepath.Glob(filepath.Join(m.sockets(), left))
		require.NoError(m.t, err)
		require.Empty(m.t, found, m.name)
	}
}
