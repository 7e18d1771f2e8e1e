package conformance

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

func peerAt(connection *net.UnixConn) (Peer, error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return Peer{}, fmt.Errorf("peer credentials: %w", err)
	}
	return Peer{PID: int(peer.Pid), UID: int(peer.Uid), GID: int(peer.Gid)}, nil
}
