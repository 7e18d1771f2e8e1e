package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// With another key under the same name nothing that is stored could be read.
func TestAnotherKeyIsRefusedAlsoWhileTheFormerPluginIsDown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	pid := r.pid("1")
	r.end() // whoever comes next has seen nothing of it
	other, same := r.draft(2, 1), r.draft(3, 1)
	require.NoError(t, os.Rename(r.keys(1), r.folder+"/away"))
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	r.start()
	r.until("it is down", func(r *Report) bool { return strings.Contains(strings.Join(r.Problems, ""), "ended by itself") })

	other.Plugins[0].Settings = r.settings(r.keys(9), "")
	r.give(other)
	r.until("the other is refused", func(r *Report) bool {
		return strings.Contains(strings.Join(r.Waits, ""), "it has another KEK, and needs another keyID")
	})
	require.Equal(t, uint64(1), r.node.Report().Accepted.Revision)

	same.Plugins[0].Settings = r.settings(r.folder+"/away", "")
	r.give(same)
	r.until("the same is accepted", settled(3, 1))
}

func TestABundleWhoseSocketsAreElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	d := r.draft(2, 1)
	d.EncryptionConfig = []byte(strings.ReplaceAll(string(d.EncryptionConfig), "/kms/kms-", "/other/kms-"))
	r.give(d)
	r.until("it is told", func(r *Report) bool { return strings.Contains(strings.Join(r.Problems, ""), "leave them there") })
	require.Contains(t, r.read(r.o.ConfigFile), "/kms/kms-1.sock")
	require.Equal(t, uint64(1), r.node.Report().InEffect.Revision)
}

// What a plugin says last is said when no bundle has its credential any more.
func TestACredentialThatNoBundleHasAnyMoreIsNotPassedOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.draft(1, 1)
	secret := r.read(r.keys(1))
	d.Plugins[0] = r.command(secret)
	r.give(d)
	r.follows()
	r.start()
	r.until("it is in effect", settled(1, 1))
	found, _, err := r.node.disk.all()
	require.NoError(t, err)
	r.api.set(func(p *played) { p.follow = "" })
	r.give(r.draft(2, 2))
	r.until("the next is", func(r *Report) bool { return r.InEffect != nil && r.InEffect.Revision == 2 })
	file, err := os.OpenFile(filepath.Join(found[0].Spec.Folder, logName), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer file.Close()
	r.follows()
	require.Eventually(t, func() bool {
		fmt.Fprintf(file, "revoking %s\n", secret)
		return settled(2, 1)(r.node.Report())
	}, time.Minute, 5*time.Millisecond)
	kek := strings.TrimSpace(strings.Split(strings.Split(secret, `"kek":`)[1], "\n")[0])
	require.Contains(t, r.logged(), "revoking")
	require.NotContains(t, r.logged(), kek)
}

func TestAnOlderBundleIsRefusedWhenWhatWasInEffectIsNotKnown(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"damaged": func(path string) error { return os.WriteFile(path, []byte("not what was written"), 0o600) },
		"lost":    os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.give(r.draft(2, 2, 1))
			r.follows()
			r.start()
			r.until("it is in effect", settled(2, 2))
			r.end()
			r.give(r.draft(1, 1))
			require.NoError(t, lose(r.o.State+"/"+keptName))
			r.start()
			report := r.until("it is refused", func(r *Report) bool { return strings.Contains(strings.Join(r.Waits, ""), "names keyID 2") })
			require.Nil(t, report.Accepted)
			require.Contains(t, r.read(r.o.ConfigFile), "kms-2.sock")
			r.give(r.draft(3, 2, 1))
			r.until("the one that has it is accepted", settled(3, 2))
		})
	}
}

// A key may be in that file alone, which would be overwritten.
func TestAFirstBundleThatDoesNotReadWhatTheFileInPlaceReadsIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	local := "  - aescbc: {keys: [{name: old, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}\n  - identity: {}\n"
	former := strings.Replace(r.configOf(), "  - identity: {}\n", local, 1)
	require.NoError(t, os.WriteFile(r.o.ConfigFile, []byte(former), 0o600))
	r.give(r.draft(1, 1))
	r.follows()
	r.start()
	r.until("it is refused", tells(`names aescbc key "old" for secrets, which it does not have, or on another socket`))
	require.Equal(t, former, r.read(r.o.ConfigFile))
	d := r.draft(2, 1)
	d.EncryptionConfig = []byte(strings.Replace(r.configOf(1), "  - identity: {}\n", local, 1))
	r.give(d)
	r.until("the one that has it is accepted", settled(2, 1))
}

// What such a file reads with is not known, and an apiserver may have it in effect.
func TestAFirstBundleIsRefusedWhereTheFileInPlaceCannotBeUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	former := "metadata: {name: mine}\n" + r.configOf() // in which apiservers before v1.30 see no mistake
	require.NoError(t, os.WriteFile(r.o.ConfigFile, []byte(former), 0o600))
	r.give(r.draft(1, 1))
	r.follows()
	r.start()
	r.until("it is refused", tells(`unknown field "metadata"`))
	require.Equal(t, former, r.read(r.o.ConfigFile))
	require.NoError(t, os.WriteFile(r.o.ConfigFile, []byte("\n"), 0o600))
	r.until("one in which there is nothing is no reason", settled(1, 1))
}

func TestABundleThatIsKeptNoLongerIsOverwritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.draft(1, 1)
	d.Plugins[0] = r.command(r.read(r.keys(1)))
	r.give(d)
	r.follows()
	r.start()
	r.until("it is in effect", settled(1, 1))
	spy := r.folder + "/spy"
	require.NoError(t, os.Link(r.o.State+"/"+keptName, spy))
	r.give(r.draft(2, 2))
	r.until("the next is", settled(2, 1))
	require.Empty(t, strings.Trim(r.read(spy), "\x00"))
}

func TestNoPluginIsStartedWhereOthersMayPutASocket(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.NoError(t, os.Mkdir(r.folder+"/kms", 0o700))
	require.NoError(t, os.Chmod(r.folder+"/kms", 0o777))
	r.give(r.draft(1, 1))
	r.start()
	r.until("it is told", func(r *Report) bool { return strings.Contains(strings.Join(r.Problems, ""), "others may write to") })
	require.Empty(t, r.node.Report().Plugins)
	require.NoError(t, os.Chmod(r.folder+"/kms", 0o755))
	r.until("it goes on", func(p *Report) bool { return p.InEffect != nil })
}
