package conformance

import (
	"fmt"
	"net"
	"time"
)

// Peer is the process that listens on a socket, as the kernel tells it: 0 and twice -1 if it
// does not.
type Peer struct{ PID, UID, GID int }

// Serves is the process that serves an endpoint.
func Serves(endpoint string) (Peer, error) {
	address, err := addressOf(endpoint)
	if err != nil {
		return Peer{}, fmt.Errorf("endpoint %q: %w", endpoint, err)
	}
	return peerOf(address)
}

func peerOf(address string) (Peer, error) {
	connection, err := net.DialTimeout("unix", address, 3*time.Second)
	if err != nil {
		return Peer{}, err
	}
	defer connection.Close()
	return peerAt(connection.(*net.UnixConn))
}
