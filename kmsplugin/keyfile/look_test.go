package keyfile

import (
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

func TestAChangeThatDoesNotReachTheDiskIsNotServedHoweverOftenItIsLookedAt(t *testing.T) {
	file, disk := onWeakDisk(t)
	served, err := file.Create(t.Context())
	require.NoError(t, err)
	plugin, err := file.Open()
	require.NoError(t, err)
	_, err = At(file.path).Rotate(t.Context())
	require.NoError(t, err)
	disk.fail("sync kek.json")
	for range 3 {
		requireHealthz(t, plugin, served.KeyID, "may not be on the disk")
		disk.fail("nothing")
	}
}

func TestOneLookAtATime(t *testing.T) {
	file, disk := onWeakDisk(t)
	_, err := file.Create(t.Context())
	require.NoError(t, err)
	plugin, err := file.Open()
	require.NoError(t, err)
	looked := false
	disk.before = func(step string) error {
		if step == "read kek.json" {
			looked = true
			require.False(t, plugin.looking.TryLock(), "a slow look would end after a later one, and undo it")
		}
		return nil
	}
	_, err = At(file.path).Rotate(t.Context())
	require.NoError(t, err)
	_, err = plugin.Status(t.Context())
	require.NoError(t, err)
	require.True(t, looked)
}

func TestTheLogTellsOfChangesAndNotOfLooks(t *testing.T) {
	var log strings.Builder
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	file, _ := onWeakDisk(t)
	_, err := file.Create(ctx)
	require.NoError(t, err)
	plugin, err := file.Open()
	require.NoError(t, err)
	logged := func(after func() error, lines ...string) {
		t.Helper()
		require.NoError(t, after())
		log.Reset()
		for range 3 {
			_, err := plugin.Status(ctx)
			require.NoError(t, err)
		}
		require.Equal(t, len(lines), strings.Count(log.String(), "\n"), log.String())
		for _, line := range lines {
			require.Contains(t, log.String(), line)
		}
	}
	logged(func() error { return nil })
	logged(func() error { return os.Chmod(file.path, 0o644) }, "cannot be relied on")
	logged(func() error { return os.Chmod(file.path, 0o600) }, "sound again")
	logged(func() error { _, err := At(file.path).Rotate(ctx); return err }, "was rotated")
	logged(func() error { return os.Rename(file.path, file.path+".away") }, "cannot be relied on")
}

func TestARotationThatFailedIsAnErrorOfThePlugin(t *testing.T) {
	newest := func(t *testing.T, p *Plugin) string {
		status, err := p.Status(t.Context())
		require.NoError(t, err)
		return status.KeyID
	}
	t.Run("no randomness", func(t *testing.T) {
		file, _ := onWeakDisk(t)
		before, err := file.Create(t.Context())
		require.NoError(t, err)
		plugin, err := file.Open()
		require.NoError(t, err)
		file.random = iotest.ErrReader(errBroken)
		info, err := plugin.Rotate(t.Context())
		require.ErrorIs(t, err, errBroken)
		require.Zero(t, info)
		require.Equal(t, before.KeyID, newest(t, plugin))
	})
	t.Run("no look at the new file", func(t *testing.T) {
		file, disk := onWeakDisk(t)
		before, err := file.Create(t.Context())
		require.NoError(t, err)
		plugin, err := file.Open()
		require.NoError(t, err)
		renamed := false
		disk.before = func(step string) error {
			renamed = renamed || step == "rename"
			if renamed && step == "open kek.json" {
				return errBroken
			}
			return nil
		}
		_, err = plugin.Rotate(t.Context())
		require.ErrorIs(t, err, errBroken)
		require.Equal(t, before.KeyID, newest(t, plugin), "what wraps is what it was")
	})
}
