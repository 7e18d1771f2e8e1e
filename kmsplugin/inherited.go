package kmsplugin

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// inheritedAt is the descriptor of the first socket that is passed on (sd_listen_fds(3)).
const inheritedAt = 3

// Inherited is the socket that whoever started this process has bound for it, as systemd
// does for a .socket unit; nil if there is none. While such a plugin is replaced by
// another one the socket stays, and calls wait in it. The environment says so by
// LISTEN_PID and LISTEN_FDS, which are taken out of it.
func Inherited() (*net.UnixListener, error) {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(name) // not for children
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	if count != "1" {
		return nil, fmt.Errorf("LISTEN_FDS is %q: pass on one socket, by one ListenStream of the .socket unit", count)
	}
	file := os.NewFile(inheritedAt, "inherited")
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("what was passed on is no socket to listen on: %w", err)
	}
	if unix, ok := listener.(*net.UnixListener); ok {
		return unix, nil
	}
	return nil, errors.Join(fmt.Errorf("a socket of %s was passed on, and none of a unix path: name a path by ListenStream", listener.Addr().Network()), listener.Close())
}

// adopt takes over a socket that is bound at a path already. Its file stays: it is that of who
// bound it.
func adopt(bound *net.UnixListener, path string) (*socket, error) {
	if at := bound.Addr().String(); at != path {
		return nil, fmt.Errorf("the socket that was passed on is at %s: give that as the endpoint, or bind this one", at)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("socket that was passed on: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("the socket that was passed on lets everybody connect (%s), and have DEKs unwrapped: SocketMode=0600 in the .socket unit", info.Mode())
	}
	bound.SetUnlinkOnClose(false)
	return &socket{UnixListener: bound, path: path, open: map[*conn]struct{}{}}, nil
}
