package plugin

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// overflowUID stands for every user whom a user namespace does not know.
const overflowUID = 65534

// checkServer refuses whoever listens on an abstract socket if that is neither root nor
// this user. Such a socket has no folder and no mode, and any local process may take its name
// while the plugin is down: it would be given DEKs.
func checkServer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("who listens is not known: %w", err)
	}
	var server *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		server, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return fmt.Errorf("who listens is not known: %w", err)
	}
	if failed != nil {
		return fmt.Errorf("who listens is not known: %w", failed)
	}
	return admit(server.Uid, os.Geteuid())
}

func admit(server uint32, self int) error {
	if server != 0 && (int(server) != self || server == overflowUID) {
		return fmt.Errorf("uid %d listens, and of an abstract socket only root and uid %d are taken for the plugin: give it a path, in a folder that is its own", server, self)
	}
	return nil
}
