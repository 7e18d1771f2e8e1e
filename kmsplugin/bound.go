package kmsplugin

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Bind binds a unix socket for something beside KMS v2, such as metrics, with the care that
// [Listen] takes: its mode is 0600, one that a crash left is replaced, and one that somebody
// listens on is an error that wraps [ErrSocketInUse]. Its Close removes the file.
func Bind(ctx context.Context, endpoint string) (net.Listener, error) {
	path, err := parseEndpoint(endpoint)
	if err == nil {
		var s *socket
		if s, err = bind(ctx, path, nil); err == nil {
			s.refused = func() {}
			return bound{s, sync.OnceValue(s.release)}, nil
		}
	}
	return nil, fmt.Errorf("endpoint %q: %w", endpoint, err)
}

// bound is a socket that is given up as a whole.
type bound struct {
	*socket
	close func() error
}

func (b bound) Close() error { return b.close() }
