package nodes

import (
	"testing"
	"time"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/operate/bundle"

	"github.com/stretchr/testify/require"
)

// course is a way of a cluster from the plugin of one back end to that of another.
type course struct {
	first, second func(bundle.KeyID, bundle.Program) bundle.DraftPlugin
	vault         *vault // of the first, if it is one
	turn          int
}

func TestNodesRunTheirPlugins(t *testing.T) {
	v, k := newVault(t), newKeyFiles(t)
	course{first: v.plugin, second: k.plugin, vault: v}.run(t)
}

func (c course) run(t *testing.T) {
	began := time.Now()
	program := another(t, harness.KMSPlugin(t), "first")
	first := func() wish { return wish{c.first(1, program)} }
	f := startFleet(t, 3, first())
	f.turn = c.turn
	f.load.More(t, 20)

	if c.vault != nil {
		f.newCredential(c.vault, first)
		f.newCA(c.vault, first)
	}
	program = another(t, harness.KMSPlugin(t), "second")
	f.change("a new program", first())
	f.wrongProgram(first, &program)

	second := c.second(2, bundle.Program{})
	f.change("a second keyID beside the first", wish{c.first(1, program), second})
	f.change("the second writes", wish{second, c.first(1, program)})
	f.rewrite()
	require.Equal(t, []string{providerOf(2)}, f.providers())
	f.misbehave(newFaulty(t, fails), 3)
	f.remove(1)
	f.powerCut()

	f.load.RequireNoFailure(t)
	f.load.RequireRead(t)
	require.Equal(t, []string{providerOf(2)}, f.providers())
	t.Logf("%d steps in %s", f.step, time.Since(began).Round(time.Second))
}

// wrongProgram names programs that are no plugin, or have another digest than the bundle says, and then
// the right one.
func (f *fleet) wrongProgram(plugins func() wish, program *bundle.Program) {
	f.t.Helper()
	next := another(f.t, harness.KMSPlugin(f.t), "third")
	former := *program
	*program = bundle.Program{Path: next.Path, SHA256: former.SHA256}
	f.refuse("a program with another digest", plugins(), "it has the digest "+next.SHA256)
	*program = another(f.t, harness.Atrest(f.t), "wrong")
	f.refuse("a program that is no plugin", plugins(), "ended by itself")
	*program = next
	f.change("the right program", plugins())
}
