package node

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/filelock"
)

// One that was killed while it started a plugin has its lock held for a moment by what is not yet that plugin.
func TestANodeThatIsStartedAgainAtOnceWaitsForTheLockOfTheOneThatWasKilled(t *testing.T) {
	r := newRig(t)
	require.NoError(t, os.MkdirAll(r.o.Run, 0o700))
	lock, err := filelock.TryAcquire(filepath.Join(r.o.Run, lockName))
	require.NoError(t, err)
	released := time.AfterFunc(2*lockPause, func() { _ = lock.Release() })
	defer released.Stop()
	n, err := New(r.o)
	require.NoError(t, err)
	require.NoError(t, n.lock.Release())
}
