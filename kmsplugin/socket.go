package kmsplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/kube-atrest/atrest/internal/filelock"
)

// ErrSocketInUse is returned by [Listen] when another server has the socket.
var ErrSocketInUse = errors.New("socket is in use")

// A socket is a bound unix socket, with the lock that keeps other servers off its path
// from before the bind until release. One that another process has bound has no lock, and
// its file is not this server's.
type socket struct {
	*net.UnixListener
	path string
	file os.FileInfo
	lock *filelock.Lock

	refused func() // told of each client that was turned away

	closing sync.Once
	mu      sync.Mutex
	open    map[*conn]struct{} // nil once cut
}

// bind takes the lock first. Two servers that start at the same time would
// otherwise both find the same dead file, and the slower one would remove the
// socket that the faster one has just made.
func bind(ctx context.Context, path string, group *int) (*socket, error) {
	if err := checkFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	lock, err := filelock.TryAcquire(path + ".lock")
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("%w: another server holds %s.lock: stop it or choose another path", ErrSocketInUse, path)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, notAllowed(path, err)
	}
	if err != nil {
		return nil, err
	}
	listener, file, err := replaceDead(ctx, path, group)
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	return &socket{
		UnixListener: listener, path: path, file: file, lock: lock, open: map[*conn]struct{}{},
	}, nil
}

// notAllowed says why the lock of a socket cannot be had.
func notAllowed(path string, err error) error {
	lock, self := path+".lock", os.Geteuid()
	if info, lost := os.Lstat(lock); lost == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != self {
			return fmt.Errorf("%w: %s belongs to uid %d, whose server has the socket or was killed while it had: stop that one or, if there is none, rm %s; or choose another path", err, lock, stat.Uid, lock)
		}
	}
	return fmt.Errorf("%w: a socket and its lock are made in folder %s: let uid %d write there, or choose another path", err, filepath.Dir(path), self)
}

func checkFolder(folder string) error {
	info, err := os.Stat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("folder %s does not exist: create it first, mkdir -p -m 0700 %s", folder, folder)
	}
	if err != nil {
		return fmt.Errorf("folder of the socket: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder: choose another path for the socket", folder)
	}
	return checkOwnersUp(folder)
}

// checkOwnersUp checks a folder and all above it, by the names that are written and by those
// that links among them stand for: who may rename one of them has the socket's path.
func checkOwnersUp(written string) error {
	resolved, err := filepath.EvalSymlinks(written)
	if err != nil {
		return fmt.Errorf("folder of the socket: %w", err)
	}
	for _, folder := range append(upFrom(written), upFrom(resolved)...) {
		info, err := os.Stat(folder)
		if err != nil {
			return fmt.Errorf("folder of the socket: %w", err)
		}
		if err := checkOwners(folder, info); err != nil {
			return err
		}
	}
	return nil
}

// upFrom is a folder and those above it.
func upFrom(folder string) []string {
	if folder == filepath.Dir(folder) {
		return []string{folder}
	}
	return append([]string{folder}, upFrom(filepath.Dir(folder))...)
}

// checkOwners refuses a folder in which others may put a socket of theirs in the place of
// this one: to that an apiserver would give its DEKs. A sticky folder, as /tmp, lets
// nobody do that.
func checkOwners(folder string, info os.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	self := os.Geteuid()
	switch {
	case stat.Uid != 0 && int(stat.Uid) != self:
		return fmt.Errorf("folder %s belongs to uid %d, who may put another socket in the place of this one: use a folder of uid %d or of root", folder, stat.Uid, self)
	case info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("others may write to folder %s (%s), and put another socket in the place of this one: chmod go-w %s", folder, info.Mode(), folder)
	}
	return nil
}

func replaceDead(ctx context.Context, path string, group *int) (*net.UnixListener, os.FileInfo, error) {
	if err := removeDead(ctx, path); err != nil {
		return nil, nil, err
	}
	listener, err := listen(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	// The file is ours to remove, and by hand: the listener's own removal
	// would take away whatever is at the path by then.
	listener.SetUnlinkOnClose(false)
	if err := letIn(path, group); err != nil {
		return nil, nil, errors.Join(err, listener.Close(), os.Remove(path))
	}
	file, err := os.Lstat(path)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("socket just made: %w", err), listener.Close())
	}
	return listener, file, nil
}

// letIn sets who may connect: the owner, and a group if there is one.
func letIn(path string, group *int) error {
	mode := fs.FileMode(0o600)
	if group != nil {
		mode = 0o660
		if err := os.Lchown(path, -1, *group); err != nil {
			return fmt.Errorf("group %d of the socket: %w: run as root, or as a user who is in that group", *group, err)
		}
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("mode of the socket: %w", err)
	}
	return nil
}

// removeDead removes a socket file that nobody listens on, and nothing else.
func removeDead(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket file: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket (%s): move it away or choose another path", path, info.Mode())
	}
	alive, err := isAlive(ctx, path)
	if err != nil {
		return fmt.Errorf("cannot tell whether %s is in use: %w: stop its owner and remove it, or choose another path", path, err)
	}
	if alive {
		return fmt.Errorf("%w: another process accepts connections on %s: stop it or choose another path", ErrSocketInUse, path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("dead socket file: %w", err)
	}
	return nil
}

func isAlive(ctx context.Context, path string) (bool, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return true, conn.Close()
	case errors.Is(err, syscall.EAGAIN): // somebody listens, with a full backlog
		return true, nil
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, err
}

func listen(ctx context.Context, name string) (*net.UnixListener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		// On Linux the mode of the unbound socket becomes the mode of its file,
		// which is thus never open to others, not even before the chmod. Where
		// that is not so the call fails, and the chmod is what there is.
		return raw.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
	}}
	listener, err := config.Listen(ctx, "unix", name)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener.(*net.UnixListener), nil
}

// Accept returns the next connection. While there are as many as there may be newcomers are
// turned away.
func (s *socket) Accept() (net.Conn, error) {
	for {
		accepted, err := s.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if c := s.track(accepted); c != nil {
			return c, nil
		}
		accepted.Close()
		s.refused()
	}
}

// Close makes the socket disappear: newcomers find nothing, connections stay.
func (s *socket) Close() error {
	var err error
	s.closing.Do(func() {
		err = errors.Join(s.removeFile(), s.UnixListener.Close())
	})
	return err
}

func (s *socket) removeFile() error {
	if s.file == nil {
		return nil
	}
	current, err := os.Lstat(s.path)
	if err != nil || !os.SameFile(s.file, current) {
		return nil // removed or replaced by somebody else
	}
	return os.Remove(s.path)
}

// release closes the socket and lets the next server have its path.
func (s *socket) release() error {
	err := s.Close()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Release())
	}
	return err
}

// A conn is known to its socket until it is closed.
type conn struct {
	net.Conn
	socket *socket
	spoke  atomic.Bool
}

// track is nil if there are too many.
func (s *socket) track(accepted net.Conn) *conn {
	c := &conn{Conn: accepted, socket: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open == nil:
		accepted.Close() // came in while cut was on its way
	case len(s.open) >= maxConnections:
		return nil
	default:
		s.open[c] = struct{}{}
	}
	return c
}

func (c *conn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
	}
	return n, err
}

func (c *conn) Close() error {
	c.socket.mu.Lock()
	delete(c.socket.open, c)
	c.socket.mu.Unlock()
	return c.Conn.Close()
}

// cut closes every connection, and any that still comes in. gRPC alone cannot: it waits,
// even when told to stop at once, for peers that connected and never said a word.
func (s *socket) cut() {
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for c := range open {
		c.Conn.Close()
	}
}

// cutSilent closes the connections of clients that never said a word, for whom gRPC would wait.
func (s *socket) cutSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if !c.spoke.Load() {
			c.Conn.Close()
		}
	}
}
