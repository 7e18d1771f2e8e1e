package lookahead

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// wire stands between a client and an etcd, and counts what etcd sends.
type wire struct {
	net.Listener
	etcd string // socket
	sent atomic.Int64
}

func wireTo(t *testing.T, endpoint string) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{Listener: l, etcd: strings.TrimPrefix(endpoint, "unix://")}
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			ended.Go(func() { w.join(client) })
		}
	})
	t.Cleanup(ended.Wait)
	t.Cleanup(func() { _ = l.Close() })
	return w
}

// join lasts until the client has gone.
func (w *wire) join(client net.Conn) {
	etcd, err := net.Dial("unix", w.etcd)
	if err != nil {
		_ = client.Close()
		return
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		_, _ = io.Copy(io.MultiWriter(client, w), etcd)
		_ = client.Close()
	})
	_, _ = io.Copy(etcd, client)
	_ = etcd.Close()
	ended.Wait()
}

func (w *wire) Write(b []byte) (int, error) {
	w.sent.Add(int64(len(b)))
	return len(b), nil
}

// Most of what is refused must not come all the same.
func TestNoMoreComesOverTheWireThanIsCharged(t *testing.T) {
	for _, c := range []struct{ run, of, size int }{{1, 9, 700 << 10}, {8, 100, 700 << 10}, {1, 50, 100 << 10}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			o := objectsOf(numbered(1000), func(i int) int { return i })
			o.large = func(i int) int {
				if i%c.of < c.run {
					return c.size
				}
				return 0
			}
			server, all := o.serve(t)
			w := wireTo(t, server.Endpoint())
			etcd, err := dial(Target{Endpoints: []string{"http://" + w.Addr().String()}})
			require.NoError(t, err)
			var spare atomic.Int64
			spare.Store(spareBytes)
			s := newSearch(etcd, 1<<20, &spare)
			for range s.values(t.Context(), prefix, following(prefix)) {
			}
			etcd.close()
			require.NoError(t, s.err)
			t.Logf("%d bytes of %d, charged %d", w.sent.Load(), all, s.spent)
			require.LessOrEqual(t, w.sent.Load(), s.spent+s.spent/10, "gRPC's own is beside it")
		})
	}
}
