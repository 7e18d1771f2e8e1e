package reload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
)

// Notifier brings the file system's events. Tests hand in their own.
type Notifier interface {
	// Notify returns a channel that gets a token after the file at path
	// changed, or anything that decides what path leads to. Events may be
	// missing, and tokens may stand for several events or for none.
	//
	// The channel is closed when it will bring no more: after ctx is done, or
	// because of an error, which calling Notify again brings up. When it is
	// closed, everything behind it has ended.
	Notify(ctx context.Context, path string) (<-chan struct{}, error)
}

// fsNotify is the [Notifier] of the operating system: inotify on Linux.
type fsNotify struct{}

var _ Notifier = fsNotify{}

// Notify watches the folder of each name that path goes by, and the file
// itself, because its folder does not hear of what is written through another
// mount or hard link. An error mostly means that a limit is used up:
// fs.inotify.max_user_instances or fs.inotify.max_user_watches.
func (fsNotify) Notify(ctx context.Context, path string) (<-chan struct{}, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("no file events can be had: %w: raise fs.inotify.max_user_instances", err)
	}
	f := newFollowing(path, watcher)
	go f.sort()
	if err := f.follow(); err != nil {
		f.stop()
		return nil, err
	}
	events := make(chan struct{}, 1)
	go f.run(ctx, events)
	return events, nil
}

// following is a watcher that follows a path. One goroutine takes in all that
// the watcher says, at once, because the watcher may hold its lock until that
// is done; another asks the watcher for something, which takes that lock.
type following struct {
	path    string
	watcher *fsnotify.Watcher
	names   atomic.Pointer[[]string] // what the path goes by
	changed chan struct{}            // a token: one of names was written to
	moved   chan struct{}            // a token: one of names came, went or moved
	ended   chan struct{}            // closed when the watcher says no more
}

func newFollowing(path string, watcher *fsnotify.Watcher) *following {
	f := &following{
		path:    path,
		watcher: watcher,
		changed: make(chan struct{}, 1),
		moved:   make(chan struct{}, 1),
		ended:   make(chan struct{}),
	}
	f.names.Store(&[]string{})
	return f
}

// sort sorts what the watcher says. An error means that events were lost,
// perhaps that something moved.
func (f *following) sort() {
	defer close(f.ended)
	for {
		select {
		case event, ok := <-f.watcher.Events:
			if !ok {
				return
			}
			f.take(event)
		case _, ok := <-f.watcher.Errors:
			if !ok {
				return
			}
			tell(f.moved)
		}
	}
}

func (f *following) take(event fsnotify.Event) {
	switch {
	case !slices.Contains(*f.names.Load(), filepath.Clean(event.Name)):
	case event.Has(fsnotify.Create), event.Has(fsnotify.Remove), event.Has(fsnotify.Rename):
		tell(f.moved)
	default:
		tell(f.changed)
	}
}

func (f *following) run(ctx context.Context, events chan<- struct{}) {
	defer close(events)
	defer f.stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.ended:
			return
		case <-f.changed:
		case <-f.moved:
			if f.follow() != nil {
				return
			}
		}
		tell(events)
	}
}

func (f *following) stop() {
	_ = f.watcher.Close() // what it could not close, nobody can
	<-f.ended
}

// follow watches what the path goes by now, and nothing else. That may change
// meanwhile, so it is read again after; a path that never rests is left to the
// poll.
func (f *following) follow() error {
	const attempts = 3
	for range attempts {
		names := namesOf(f.path)
		f.names.Store(&names)
		// A folder may be another one under the same name: no watch is kept.
		for _, watched := range f.watcher.WatchList() {
			_ = f.watcher.Remove(watched) // or it went with its folder
		}
		if err := f.add(names); err != nil {
			return err
		}
		if slices.Equal(names, namesOf(f.path)) {
			return nil
		}
		tell(f.changed)
	}
	return nil
}

// add leaves a folder that may not be read, or has just gone, to the poll.
func (f *following) add(names []string) error {
	for _, name := range append(folders(names), names[len(names)-1]) {
		err := f.watcher.Add(name)
		if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("no file events of %s can be had: %w: raise fs.inotify.max_user_watches", name, err)
		}
	}
	return nil
}

func folders(names []string) []string {
	var folders []string
	for _, name := range names {
		if folder := filepath.Dir(name); !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	return folders
}

// tell puts a token into a channel that has room for one.
func tell(tokens chan<- struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}
