package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// Who is connected to it goes on, and an apiserver that starts does not reach it.
func TestAPluginWhoseSocketIsRemovedIsNotWellAndReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	former, name := r.pid("1"), r.folder+"/kms/kms-1.sock"
	socket, err := filepath.EvalSymlinks(name)
	require.NoError(t, err)
	require.NoError(t, os.Remove(socket))
	report := r.until("it is told", func(p *Report) bool { return len(p.Plugins) == 1 && !p.Plugins[0].Well })
	require.Equal(t, plugin.Unreachable, report.Plugins[0].Class)
	require.Equal(t, former, r.pid("1"))
	r.end()

	r.o.Silence = time.Second
	r.start()
	r.until("another one has its place", func(p *Report) bool { return settled(1, 1)(p) && r.pid("1") != former })
	_, err = os.Stat(name)
	require.NoError(t, err)
}
