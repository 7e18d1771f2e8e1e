package nodes

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// course is the way of a cluster from the plugin of one back end to that of another, with all that
// changes on it.
type course struct {
	first, second backend
	// vault is that of the two which is one, or of both.
	vault *vault
	// turn is of the kinds of processes the one that is killed first.
	turn int
}

func fromVaultToKeyFiles(t *testing.T) course {
	v := newVault(t)
	return course{first: v, second: newKeyFiles(t), vault: v}
}

func fromKeyFilesToVault(t *testing.T) course {
	v := newVault(t)
	return course{first: newKeyFiles(t), second: v, vault: v}
}

func fromVaultToVault(t *testing.T) course {
	v := newVault(t)
	return course{first: v, second: v, vault: v}
}

// What is meant to change does, and all that is killed comes back.
func TestAClusterServesWhileItsNodesChangeTheirPlugins(t *testing.T) { fromVaultToKeyFiles(t).run(t) }

// One turn after the other, a node, a plugin and an apiserver are killed at every step.
func TestNodesOutliveKill9OfEveryKindAtEveryStep(t *testing.T) {
	if !*long {
		t.Skip("it takes minutes, and one kind at each step is killed in the other test: run it with -long")
	}
	for name, begin := range map[string]func(*testing.T) course{
		"from Vault to key files": fromVaultToKeyFiles, "from key files to Vault": fromKeyFilesToVault, "from one key of Vault to another": fromVaultToVault,
	} {
		for turn := range kinds {
			t.Run(fmt.Sprintf("%s, %s first", name, kinds[turn]), func(t *testing.T) {
				c := begin(t)
				c.turn = turn
				c.run(t)
			})
		}
	}
}

func (c course) run(t *testing.T) {
	program := another(t, harness.KMSPlugin(t), "first")
	former := func() bundle.DraftPlugin { return c.first.plugin(1, program) }
	next := func() bundle.DraftPlugin { return c.second.plugin(2, bundle.Program{}) }
	f := startFleet(t, 3, of(former))
	f.turn = c.turn
	f.load.More(t, 20)
	began := time.Now()

	if c.first == backend(c.vault) {
		f.newCredential(c.vault)
		f.newCA(c.vault)
	}
	program = another(t, harness.KMSPlugin(t), "second")
	f.change("a new program", of(former))
	f.wrongProgram(&program)

	f.change("a second keyID beside the first", of(former, next))
	f.change("the second writes", of(next, former))
	f.rewrite()
	require.Equal(t, []string{providerOf(2)}, f.providers())
	if c.second == backend(c.vault) {
		f.newCredential(c.vault)
	}
	f.misbehave(newFaulty(t), 3)
	f.remove(1)
	f.powerCut()

	f.load.RequireNoFailure(t)
	f.load.RequireRead(t)
	require.Equal(t, []string{providerOf(2)}, f.providers())
	t.Logf("%d steps in %s", f.step, time.Since(began).Round(time.Second))
}

// wrongProgram names programs that are no plugin, or have another digest than the bundle says, and then
// the right one.
func (f *fleet) wrongProgram(program *bundle.Program) {
	f.t.Helper()
	next := another(f.t, harness.KMSPlugin(f.t), "third")
	*program = bundle.Program{Path: next.Path, SHA256: program.SHA256}
	f.refuse("a program with another digest", f.asks, "it has the digest "+next.SHA256)
	*program = another(f.t, harness.Atrest(f.t), "wrong")
	f.refuse("a program that is no plugin", f.asks, "ended by itself")
	*program = next
	f.change("the right program", f.asks)
}
