package node

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// draftIn is a bundle whose sockets are in another folder.
func (r *rig) draftIn(folder string, revision uint64, keyIDs ...int) bundle.Draft {
	d := r.draft(revision, keyIDs...)
	d.EncryptionConfig = []byte(strings.ReplaceAll(string(d.EncryptionConfig), r.folder+"/kms/", r.folder+folder))
	return d
}

// The apiserver would look for them where nobody listens.
func TestAnotherFolderOfSocketsIsRefusedWhileAPluginHasItsOwnElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	r.give(r.draftIn("/other/", 2, 1))
	r.until("it is refused", tells("the sockets of the bundle are in "+r.folder+"/other, and plugins that may be needed have theirs in "+r.folder+"/kms"))
	r.end()

	r.o.State += ".new" // as after a disk was lost
	r.start()
	report := r.until("it is refused by what runs", tells("has its socket in "+r.folder+"/kms, and not in "+r.folder+"/other"))
	require.Nil(t, report.Accepted)
	require.Equal(t, r.configOf(1), read(r.o.ConfigFile)+"\n")
}

func TestAFolderOfSocketsThatIsNotYetInUseCanBeChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.draftIn("/wrong/", 1, 1)
	d.Plugins[0] = r.faultyPlugin(1, "denied")
	r.give(d)
	r.follows()
	r.start()
	r.until("it is not let in", func(r *Report) bool { return len(r.Plugins) == 1 && r.Plugins[0].Message != "" })
	d = r.draft(2, 1)
	d.Plugins[0] = r.faultyPlugin(1, "denied")
	r.give(d)
	r.until("it is started anew where it is to be", func(p *Report) bool { return len(p.Plugins) == 1 && inFolder(r, "/kms/") })
}

func inFolder(r *rig, folder string) bool {
	found, _, err := r.node.disk.all()
	return err == nil && len(found) == 1 && strings.HasPrefix(found[0].Spec.Socket, r.folder+folder)
}

// An operator who corrects the flag is to see that it has no effect yet.
func TestAnotherFlagForTheFolderOfSocketsIsToldOfAPluginThatRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.o.Sockets = r.folder + "/a"
	r.runs()
	r.end()
	r.o.Sockets, r.o.Bundles = r.folder+"/b", ""
	r.start()
	r.until("it is told", tells("has its socket in "+r.folder+"/a, and not in "+r.folder+"/b"))
	r.end()
	r.o.Sockets += "/" // the same in other words
	r.o.Drain = true
	r.start()
	r.end()
	r.start()
	r.until("it is in effect there", func(p *Report) bool { return settled(1, 1)(p) && inFolder(r, "/b/") && len(p.Problems) == 0 })
	r.o.Drain = false
}
