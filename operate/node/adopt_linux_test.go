package node

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A plugin that was run by hand has a socket of another name, as in the recipes for clusters. Whether its KEK is
// that of the bundle is not known here.
func TestTheFileOfAPluginThatWasRunByHandStaysUntilItIsMovedAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	former := strings.Replace(r.configOf(1), "kms-1.sock", "one.sock", 1)
	require.NoError(t, os.WriteFile(r.o.ConfigFile, []byte(former), 0o600))
	r.give(r.draft(1, 1))
	r.follows()
	r.start()
	r.until("it is told what is to be seen before", tells(`names kms v2 "1_secrets" for secrets, which it does not have, or on another socket`, `"atrest bundle try --stored" shows`))
	require.Equal(t, former, r.read(r.o.ConfigFile))
	require.NoError(t, os.Rename(r.o.ConfigFile, r.folder+"/former.yaml"))
	r.until("it is in effect", settled(1, 1))
}
