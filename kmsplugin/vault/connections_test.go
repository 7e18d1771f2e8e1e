package vault_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
)

// balancer passes connections on to a Vault, as one of TCP does.
type balancer struct {
	to   string
	sunk chan struct{} // told when something goes nowhere

	mu     sync.Mutex
	passed []*passed
}

// passed is a connection of a client.
type passed struct {
	net.Conn
	mu    sync.Mutex
	gone  bool          // what comes goes nowhere
	sunk  chan struct{} // of the balancer
	reset bool          // and is answered by a reset
}

func startBalancer(t *testing.T, p *place) *balancer {
	t.Helper()
	b := &balancer{to: strings.TrimPrefix(p.Address, "https://"), sunk: make(chan struct{}, 1)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close(); b.forget(func(c *passed) { c.Close() }) })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			b.pass(&passed{Conn: c, sunk: b.sunk})
		}
	}()
	p.config.Address = "https://" + listener.Addr().String()
	return b
}

func (b *balancer) pass(c *passed) {
	vault, err := net.Dial("tcp", b.to)
	if err != nil {
		c.Close()
		return
	}
	b.mu.Lock()
	b.passed = append(b.passed, c)
	b.mu.Unlock()
	go func() { defer vault.Close(); io.Copy(vault, c) }()
	go func() { defer c.Close(); io.Copy(c.Conn, vault) }()
}

// Read keeps what comes of a connection that is gone.
func (c *passed) Read(into []byte) (int, error) {
	for {
		n, err := c.Conn.Read(into)
		c.mu.Lock()
		gone, reset := c.gone, c.reset
		c.mu.Unlock()
		switch {
		case err != nil || !gone:
			return n, err
		case reset:
			c.Conn.(*net.TCPConn).SetLinger(0)
			c.Close()
			return 0, net.ErrClosed
		}
		select {
		case c.sunk <- struct{}{}:
		default:
		}
	}
}

// forget has something happen to all connections that there are, and returns how many.
func (b *balancer) forget(do func(*passed)) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.passed {
		do(c)
	}
	return len(b.passed)
}

// openMany has a session keep many connections.
func openMany(t *testing.T, p *place) (s kmsplugin.Session, v kmsplugin.Version, ciphertext []byte) {
	t.Helper()
	const many = 16
	s = open(t, p.transit(t))
	v = writer(t, s)
	ciphertext = wrap(t, s, v)
	faults := p.Faults()
	before := faults.Requests("transit/decrypt")
	faults.Hang("transit/decrypt")
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			_, err := s.Unwrap(t.Context(), v, ciphertext, []byte(v.KeyID()))
			assert.NoError(t, err)
		})
	}
	require.Eventually(t, func() bool { return faults.Requests("transit/decrypt") == before+many }, time.Minute, time.Millisecond)
	faults.Clear()
	all.Wait()
	return s, v, ciphertext
}

func TestConnectionsThatGoNowhereAreGivenUpTogether(t *testing.T) {
	p := newPlace(t)
	p.Faults()
	b := startBalancer(t, p)
	s, v, ciphertext := openMany(t, p)
	n := b.forget(func(c *passed) { c.mu.Lock(); c.gone = true; c.mu.Unlock() })
	require.GreaterOrEqual(t, n, 16)
	ctx, late := context.WithCancelCause(t.Context())
	go func() { <-b.sunk; late(context.DeadlineExceeded) }()
	_, err := s.Unwrap(ctx, v, ciphertext, []byte(v.KeyID()))
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = s.Unwrap(ctx, v, ciphertext, []byte(v.KeyID()))
	require.NoError(t, err, "the next call has a new connection")
}

func TestConnectionsThatAreResetWhenTheyAreUsedFailNoCall(t *testing.T) {
	p := newPlace(t)
	p.Faults()
	b := startBalancer(t, p)
	s, v, ciphertext := openMany(t, p)
	b.forget(func(c *passed) { c.mu.Lock(); c.gone, c.reset = true, true; c.mu.Unlock() })
	for range 3 {
		require.NoError(t, unwrap(t, s, v, ciphertext))
	}
}

func TestACallThatIsGivenUpLeavesTheConnections(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	b := startBalancer(t, p)
	s, v, ciphertext := openMany(t, p)
	before := b.forget(func(*passed) {})
	faults.Hang("transit/decrypt")
	ctx, cancel := context.WithCancel(t.Context())
	asked := faults.Requests("transit/decrypt")
	ended := make(chan error)
	go func() {
		_, err := s.Unwrap(ctx, v, ciphertext, nil)
		ended <- err
	}()
	require.Eventually(t, func() bool { return faults.Requests("transit/decrypt") > asked }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	faults.Clear()
	for range 3 {
		require.NoError(t, unwrap(t, s, v, ciphertext))
	}
	require.Equal(t, before, b.forget(func(*passed) {}))
}

// A balancer of TCP leads new connections to a node that answers, and leaves those that there are with
// the one that does no more, for as long as it keeps them.
func TestAKeptConnectionToANodeThatCannotAnswerIsLeft(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"sealed": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"errors":["Vault is sealed"]}`)
		},
		"without an active node": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"errors":["local node not active but active cluster node not found"]}`)
		},
		"a standby that sends elsewhere": func(w http.ResponseWriter) {
			w.Header().Set("Location", "https://active.test:8200/v1/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			const many = 16
			var together sync.WaitGroup // of calls, so that each keeps a connection of its own
			together.Add(many)
			var mu sync.Mutex
			out, of := false, map[string]bool{} // connections to the node, until it is taken out
			p := newPlace(t)
			p.before(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				mu.Lock()
				if !out {
					of[r.RemoteAddr] = true
				}
				before, refuses := !out, out && of[r.RemoteAddr]
				mu.Unlock()
				switch {
				case refuses:
					answer(w)
					return
				case before && strings.Contains(r.URL.Path, "/decrypt/"):
					together.Done()
					together.Wait()
				}
				next.ServeHTTP(w, r)
			})
			s, err := p.transit(t).Open(t.Context())
			require.NoError(t, err)
			v := vault.VersionOf(p.config, 1, 1)
			ciphertext := []byte(p.Write("transit/encrypt/k", map[string]any{"plaintext": dek})["ciphertext"].(string))
			unwrapAll := func() {
				var all sync.WaitGroup
				for range many {
					all.Go(func() {
						_, err := s.Unwrap(t.Context(), v, ciphertext, nil)
						assert.NoError(t, err)
					})
				}
				all.Wait()
			}
			unwrapAll()
			mu.Lock()
			out = true
			mu.Unlock()
			unwrapAll()
			require.NoError(t, s.Close(t.Context()))
		})
	}
}
