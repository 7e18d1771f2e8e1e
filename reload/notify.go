package reload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// Notifier brings the file system's events. Tests hand in their own.
type Notifier interface {
	// Notify returns a channel that holds a token after one of names changed:
	// the names that decide what the path leads to, the file itself last. Events
	// may be missing and tokens may stand for nothing.
	//
	// The channel is closed when it will bring no more: after ctx is done,
	// when a name came, went or moved, so that other folders are to be watched
	// now, or on an error. When it is closed everything behind it has ended.
	Notify(ctx context.Context, names []string) (<-chan struct{}, error)
}

// FSNotify is the [Notifier] of the operating system: inotify on Linux.
type FSNotify struct{}

var _ Notifier = FSNotify{}

// Notify watches the folders of all names, and the file itself: its folder does
// not hear of what is written through another mount or hard link. An error
// mostly means that a limit is used up: fs.inotify.max_user_instances or
// fs.inotify.max_user_watches.
func (FSNotify) Notify(ctx context.Context, names []string) (<-chan struct{}, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("file events cannot be had: %w: raise fs.inotify.max_user_instances", err)
	}
	if err := addAll(watcher, names); err != nil {
		return nil, errors.Join(err, watcher.Close())
	}
	events := make(chan struct{}, 1)
	go func() {
		defer close(events)
		defer watcher.Close()
		pump(ctx, watcher, names, events)
	}()
	return events, nil
}

// addAll leaves a folder that may not be read, or has just gone, to the poll.
func addAll(watcher *fsnotify.Watcher, names []string) error {
	for _, name := range append(folders(names), names[len(names)-1]) {
		err := watcher.Add(name)
		if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("file events of %s cannot be had: %w: raise fs.inotify.max_user_watches", name, err)
		}
	}
	return nil
}

func folders(names []string) []string {
	var folders []string
	seen := map[string]bool{}
	for _, name := range names {
		folder := filepath.Dir(name)
		if !seen[folder] {
			seen[folder] = true
			folders = append(folders, folder)
		}
	}
	return folders
}

// pump passes events on until ctx is done or the watcher has to be set up anew.
func pump(ctx context.Context, watcher *fsnotify.Watcher, names []string, events chan<- struct{}) {
	watched := map[string]bool{}
	for _, name := range names {
		watched[name] = true
	}
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-watcher.Events:
			if !ok || moves(event) && watched[filepath.Clean(event.Name)] {
				return
			}
			if !watched[filepath.Clean(event.Name)] {
				continue
			}
		case err, ok := <-watcher.Errors:
			if !ok || !errors.Is(err, fsnotify.ErrEventOverflow) {
				return
			}
		}
		select {
		case events <- struct{}{}:
		default:
		}
	}
}

func moves(event fsnotify.Event) bool {
	return event.Has(fsnotify.Create) || event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)
}
