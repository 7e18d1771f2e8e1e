//go:build !linux

package kmsplugin

import (
	"errors"
	"net"
)

const abstractSockets = false

// checkPeer is never reached: no abstract socket gets to listen here.
func checkPeer(*net.UnixConn) error {
	return errors.New("abstract sockets need Linux")
}
