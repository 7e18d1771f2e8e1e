package reload

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
)

// Without a descriptor to be had there is no watcher.
func TestWithoutAWatcherThereAreNoEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	writeFile(t, path, inUse)
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: before.Max}))
	events, err := fsNotify{}.Notify(t.Context(), path)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
	require.ErrorIs(t, err, syscall.EMFILE)
	require.ErrorContains(t, err, "raise fs.inotify.max_user_instances")
	require.Nil(t, events)
}

// A name that the system does not watch, for another reason than that it is not
// there or may not be read, leaves nothing behind.
func TestWithoutAWatchThereAreNoEvents(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "not a folder")
	descriptors := openDescriptors(t)
	for range 10 {
		events, err := fsNotify{}.Notify(t.Context(), filepath.Join(file, "config"))
		require.ErrorIs(t, err, syscall.ENOTDIR)
		require.ErrorContains(t, err, file+"/config")
		require.ErrorContains(t, err, "raise fs.inotify.max_user_watches")
		require.Nil(t, events)
	}
	require.Equal(t, descriptors, openDescriptors(t))
}

func TestEventsEndWhenAWatchCanBeHadNoLonger(t *testing.T) {
	dir := realTempDir(t)
	path := plain(t, dir)
	events, err := fsNotify{}.Notify(t.Context(), path)
	require.NoError(t, err)
	rename(t, dir+"/a/b", dir+"/old")
	writeFile(t, dir+"/a/new", "not a folder")
	rename(t, dir+"/a/new", dir+"/a/b")
	requireEnds(t, events)
}

func TestEventsEndWithTheWatcher(t *testing.T) {
	for name, end := range map[string]func(*fsnotify.Watcher){
		"events": func(w *fsnotify.Watcher) { close(w.Events) },
		"errors": func(w *fsnotify.Watcher) { close(w.Errors) },
	} {
		t.Run(name, func(t *testing.T) {
			real, err := fsnotify.NewWatcher()
			require.NoError(t, err)
			defer real.Close()
			watcher := *real
			watcher.Events, watcher.Errors = make(chan fsnotify.Event), make(chan error)
			f := newFollowing("/etc/config", &watcher)
			go f.sort()
			events := make(chan struct{}, 1)
			go f.run(context.Background(), events)
			end(&watcher)
			requireEnds(t, events)
		})
	}
}

func requireEnds(t *testing.T, events <-chan struct{}) {
	t.Helper()
	given := time.After(30 * time.Second)
	for {
		select {
		case _, open := <-events:
			if !open {
				return
			}
		case <-given:
			t.Fatal("the events go on")
		}
	}
}
