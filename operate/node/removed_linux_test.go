package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// A second name of a file shows what is in its place on the medium after it is gone.
func TestTheFilesOfARemovedKeyIDAreOverwrittenAndGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.draft(1, 1)
	d.Plugins[0] = r.command(r.read(r.keys(1)))
	r.give(d)
	r.follows()
	r.start()
	r.until("it is in effect", settled(1, 1))
	found, _, err := instances{filepath.Join(r.o.Run, "instances")}.all()
	require.NoError(t, err)
	require.Len(t, found, 1)
	part := bundle.Part{Source: bundle.Secret, Name: "login", Key: "token"}
	secret, spy := found[0].Spec.Files()+"/"+part.FileName(1), r.folder+"/spy"
	require.NoError(t, os.Link(secret, spy))
	require.NotEmpty(t, strings.Trim(r.read(spy), "\x00"))

	r.give(r.draft(2, 2))
	r.until("the keyID has gone", settled(2, 1))
	require.NoDirExists(t, found[0].Spec.Folder)
	require.Empty(t, strings.Trim(r.read(spy), "\x00"))
	left, err := filepath.Glob(r.o.Run + "/instances/*")
	require.NoError(t, err)
	require.Len(t, left, 1, "that of the other keyID")
}
