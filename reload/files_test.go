package reload

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// way is one way to change what a path leads to.
type way struct {
	// lay puts inUse under dir and returns the path to it.
	lay func(t *testing.T, dir string) string
	// change makes the path lead to "second".
	change func(t *testing.T, dir string)
}

// plain puts the file into dir/a/b.
func plain(t *testing.T, dir string) string {
	path := filepath.Join(mkdir(t, dir, "a", "b"), "config")
	writeFile(t, path, inUse)
	return path
}

// mounted lays the file out as kubelet mounts a ConfigMap or a Secret.
func mounted(t *testing.T, dir string) string {
	writeFile(t, filepath.Join(mkdir(t, dir, "..2026_01"), "config"), inUse)
	symlink(t, "..2026_01", filepath.Join(dir, "..data"))
	symlink(t, "..data/config", filepath.Join(dir, "config"))
	return filepath.Join(dir, "config")
}

// linked has a symbolic link for the file and one for a folder before it.
func linked(t *testing.T, dir string) string {
	writeFile(t, filepath.Join(mkdir(t, dir, "real"), "target"), inUse)
	symlink(t, filepath.Join(dir, "real"), filepath.Join(dir, "folder"))
	symlink(t, "target", filepath.Join(dir, "real", "config"))
	return filepath.Join(dir, "folder", "config")
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.Rename(from, to))
}

// relink points a link elsewhere, in one step.
func relink(t *testing.T, target, name string) {
	t.Helper()
	symlink(t, target, name+".new")
	rename(t, name+".new", name)
}

var ways = map[string]way{
	"written in place": {plain, func(t *testing.T, dir string) {
		f, err := os.OpenFile(dir+"/a/b/config", os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteString("second")
		require.NoError(t, err)
		require.NoError(t, f.Truncate(int64(len("second"))))
		require.NoError(t, f.Close())
	}},
	"truncated then written": {plain, func(t *testing.T, dir string) {
		require.NoError(t, os.Truncate(dir+"/a/b/config", 0))
		writeFile(t, dir+"/a/b/config", "second")
	}},
	"renamed over": {plain, func(t *testing.T, dir string) {
		writeFile(t, dir+"/a/b/new", "second")
		rename(t, dir+"/a/b/new", dir+"/a/b/config")
	}},
	"deleted and created": {plain, func(t *testing.T, dir string) {
		require.NoError(t, os.Remove(dir+"/a/b/config"))
		writeFile(t, dir+"/a/b/config", "second")
	}},
	"folder replaced": {plain, func(t *testing.T, dir string) {
		writeFile(t, mkdir(t, dir, "a", "new")+"/config", "second")
		rename(t, dir+"/a/b", dir+"/a/old")
		rename(t, dir+"/a/new", dir+"/a/b")
	}},
	"folder removed and made": {plain, func(t *testing.T, dir string) {
		require.NoError(t, os.RemoveAll(dir+"/a/b"))
		writeFile(t, mkdir(t, dir, "a", "b")+"/config", "second")
	}},
	"folder of the folder replaced": {plain, func(t *testing.T, dir string) {
		writeFile(t, mkdir(t, dir, "new", "b")+"/config", "second")
		rename(t, dir+"/a", dir+"/old")
		rename(t, dir+"/new", dir+"/a")
	}},
	"..data swapped": {mounted, func(t *testing.T, dir string) {
		writeFile(t, mkdir(t, dir, "..2026_02")+"/config", "second")
		relink(t, "..2026_02", dir+"/..data")
		require.NoError(t, os.RemoveAll(dir+"/..2026_01"))
	}},
	"link to the file changed": {linked, func(t *testing.T, dir string) {
		writeFile(t, dir+"/real/second", "second")
		relink(t, "second", dir+"/real/config")
	}},
	"link to a folder changed": {linked, func(t *testing.T, dir string) {
		writeFile(t, mkdir(t, dir, "other")+"/config", "second")
		relink(t, "other", dir+"/folder")
	}},
	"link replaced by a file": {linked, func(t *testing.T, dir string) {
		require.NoError(t, os.Remove(dir+"/real/config"))
		writeFile(t, dir+"/real/config", "second")
	}},
	"target of the link written": {linked, func(t *testing.T, dir string) {
		writeFile(t, dir+"/real/target", "second")
	}},
	"target of the link renamed over": {linked, func(t *testing.T, dir string) {
		writeFile(t, dir+"/new", "second")
		rename(t, dir+"/new", dir+"/real/target")
	}},
	"written through another hard link": {plain, func(t *testing.T, dir string) {
		require.NoError(t, os.Link(dir+"/a/b/config", dir+"/other"))
		writeFile(t, dir+"/other", "second")
	}},
}

// loads is what a controller with a real clock took into use, and when.
type loads struct {
	mu       sync.Mutex
	contents []string
	last     time.Time
	// looks has a token for each look that asked for events.
	looks chan struct{}
}

func (l *loads) add(content string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contents, l.last = append(l.contents, content), time.Now()
}

func (l *loads) have() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.contents
}

func (l *loads) since(t time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.Sub(t)
}

// followFile runs a controller until the test ends. It returns when events, if
// there are any, are being watched.
func followFile(t *testing.T, path string, config Config[Generation]) *loads {
	t.Helper()
	got := &loads{looks: make(chan struct{}, 100)}
	set := NewSet[Generation](&fakeGeneration{name: inUse}, SetOptions{})
	config.Path, config.Hash, config.Set = path, Hash([]byte(inUse)), set
	config.Build = func(_ context.Context, content []byte) (Generation, error) {
		got.add(string(content))
		return &fakeGeneration{name: string(content)}, nil
	}
	config.Notifier = announcing{config.Notifier, got.looks}
	c, err := NewController(config)
	require.NoError(t, err)
	logger := ktesting.NewLogger(t, ktesting.NewConfig())
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done; set.Close() })
	<-got.looks
	return got
}

// announcing tells of each call of Notify after it.
type announcing struct {
	Notifier
	watched chan<- struct{}
}

func (a announcing) Notify(ctx context.Context, path string) (<-chan struct{}, error) {
	events, err := a.Notifier.Notify(ctx, path)
	select {
	case a.watched <- struct{}{}:
	default:
	}
	return events, err
}

// none is a Notifier for a file system without events.
type none struct{}

func (none) Notify(context.Context, string) (<-chan struct{}, error) {
	return nil, errors.New("no events here")
}

// With a poll once an hour it is the events that bring every change, and after
// it a further one: what is watched follows the path.
func TestEachWayOfChangingTheFileTakesEffectByEvent(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			dir := realTempDir(t)
			path := way.lay(t, dir)
			got := followFile(t, path, Config[Generation]{Poll: time.Hour, Notifier: fsNotify{}})
			way.change(t, dir)
			changed := time.Now()
			requireLoads(t, got, "second")
			t.Logf("in use %v after the last write", got.since(changed).Round(time.Millisecond))
			writeFile(t, path, "third")
			requireLoads(t, got, "second", "third")
		})
	}
}

func TestEachWayOfChangingTheFileTakesEffectByPoll(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			dir := realTempDir(t)
			path := way.lay(t, dir)
			got := followFile(t, path, Config[Generation]{Poll: 50 * time.Millisecond, Quiet: 10 * time.Millisecond, Notifier: none{}})
			<-got.looks // the second begins when the first, which is no poll, is over
			way.change(t, dir)
			requireLoads(t, got, "second")
		})
	}
}

func requireLoads(t *testing.T, got *loads, want ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(got.have()) >= len(want) }, 30*time.Second, 2*time.Millisecond)
	require.Equal(t, want, got.have())
}

func TestEventsLeaveNothingBehind(t *testing.T) {
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors(t)
	path := filepath.Join(t.TempDir(), "config")
	writeFile(t, path, inUse)
	for range 100 {
		ctx, stop := context.WithCancel(t.Context())
		events, err := fsNotify{}.Notify(ctx, path)
		require.NoError(t, err)
		stop()
		for range events {
		}
	}
	require.LessOrEqual(t, openDescriptors(t), descriptors)
	const own = 1 // Eventually asks from a goroutine
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+own }, 10*time.Second, 10*time.Millisecond)
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this system does not list open file descriptors")
	}
	return len(entries)
}

func TestWhatEventsSay(t *testing.T) {
	const name = "/etc/config"
	const nothing, changed, moved = "nothing", "changed", "moved"
	for _, test := range []struct {
		event fsnotify.Event
		err   error
		want  string
	}{
		{event: fsnotify.Event{Name: name, Op: fsnotify.Write}, want: changed},
		{event: fsnotify.Event{Name: "/" + name, Op: fsnotify.Write}, want: changed},
		{event: fsnotify.Event{Name: name, Op: fsnotify.Chmod}, want: changed},
		{event: fsnotify.Event{Name: name, Op: fsnotify.Create}, want: moved},
		{event: fsnotify.Event{Name: name, Op: fsnotify.Remove}, want: moved},
		{event: fsnotify.Event{Name: name, Op: fsnotify.Rename}, want: moved},
		{event: fsnotify.Event{Name: "/etc", Op: fsnotify.Rename}, want: moved},
		{event: fsnotify.Event{Name: "/etc/other", Op: fsnotify.Write}, want: nothing},
		{event: fsnotify.Event{Name: "/etc/other", Op: fsnotify.Create}, want: nothing},
		{err: fsnotify.ErrEventOverflow, want: moved},
	} {
		watcher := &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
		f := newFollowing(name, watcher)
		f.names.Store(&[]string{"/etc", name})
		go f.sort()
		if test.err != nil {
			watcher.Errors <- test.err
		} else {
			watcher.Events <- test.event
		}
		close(watcher.Errors)
		<-f.ended
		got := nothing
		if len(f.changed) == 1 {
			got = changed
		}
		if len(f.moved) == 1 {
			got = moved
		}
		require.Equal(t, test.want, got, "%v %v", test.event, test.err)
	}
}

// A folder that is moved and then removed makes fsnotify report an error while
// it holds its lock, to whoever listens: nobody must wait for the lock then.
func TestFoldersThatMoveAndGoDoNotStopTheEvents(t *testing.T) {
	dir := realTempDir(t)
	path := plain(t, dir)
	got := followFile(t, path, Config[Generation]{Poll: time.Hour, Notifier: fsNotify{}})
	for range 100 {
		rename(t, dir+"/a", dir+"/old")
		require.NoError(t, os.RemoveAll(dir+"/old"))
		mkdir(t, dir, "a", "b")
	}
	writeFile(t, path, "second")
	requireLoads(t, got, "second")
}

func TestRunWithoutAnyEventSourceEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	writeFile(t, path, inUse)
	followFile(t, path, Config[Generation]{Notifier: none{}})
}
