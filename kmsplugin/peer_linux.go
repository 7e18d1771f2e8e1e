package kmsplugin

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const abstractSockets = true

// checkPeer does for an abstract socket what mode 0600 does for a socket file:
// only root and the user of this process may connect. Without it every process
// of the network namespace could have any DEK unwrapped.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("peer credentials: %w", err)
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return fmt.Errorf("peer credentials: %w", err)
	}
	if failed != nil {
		return fmt.Errorf("peer credentials: %w", failed)
	}
	return admit(peer.Uid, os.Geteuid())
}

func admit(peer uint32, self int) error {
	if peer != 0 && int(peer) != self {
		return fmt.Errorf("uid %d may not connect: only root and uid %d may", peer, self)
	}
	return nil
}
