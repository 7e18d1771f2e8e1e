package vault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/bubble"
)

// reached is a connection to an address, of those that are open.
type reached struct {
	net.Conn
	at   string
	open *atomic.Int32
}

func (r reached) Close() error { r.open.Add(-1); return nil }

// node is an address of a host.
type node string

func (node) Network() string  { return "tcp" }
func (n node) String() string { return string(n) }

// to is a connection to a node.
type to struct {
	net.Conn
	node node
}

func (t to) RemoteAddr() net.Addr { return t.node }

var errRefused = errors.New("refused")

// hosts are the addresses of a host, and what becomes of a connection to each: "up" answers at once,
// "far" after 300 ms, "down" never, and all others refuse.
type hosts struct {
	nodes []string
	open  atomic.Int32
}

func (h *hosts) lookUp(context.Context, string) (addresses []string, err error) {
	for i := range h.nodes {
		addresses = append(addresses, fmt.Sprint(i))
	}
	return addresses, nil
}

func (h *hosts) connect(ctx context.Context, _, address string) (net.Conn, error) {
	var n, port int
	if _, err := fmt.Sscanf(address, "%d:%d", &n, &port); err != nil || port != 8200 {
		return nil, fmt.Errorf("%s is no address here", address)
	}
	switch h.nodes[n] {
	case "up":
	case "far":
		time.Sleep(300 * time.Millisecond) // also if nobody waits for it any more
	case "down":
		<-ctx.Done()
		return nil, fmt.Errorf("%s: %w", address, os.ErrDeadlineExceeded)
	default:
		return nil, fmt.Errorf("%s: %w", address, errRefused)
	}
	h.open.Add(1)
	return reached{at: address, open: &h.open}, nil
}

// dialer is that of the plugin, to these hosts.
func (h *hosts) dialer() dialer {
	d := newDialer()
	d.lookUp, d.connect = h.lookUp, h.connect
	return d
}

func TestANodeThatIsDownHidesNoneThatIsUp(t *testing.T) {
	for name, test := range map[string]struct {
		nodes []string
		at    string
		took  time.Duration
		err   error
	}{
		"one":                        {nodes: []string{"up"}, at: "0:8200"},
		"the first is up":            {nodes: []string{"up", "up", "down"}, at: "0:8200"},
		"the first is down":          {nodes: []string{"down", "up"}, at: "1:8200", took: 200 * time.Millisecond},
		"all but the last are":       {nodes: []string{"down", "down", "down", "down", "up"}, at: "4:8200", took: 800 * time.Millisecond},
		"the first refuses":          {nodes: []string{"", "up"}, at: "1:8200"},
		"it is far, and so are all":  {nodes: []string{"far", "far", "far"}, at: "0:8200", took: 300 * time.Millisecond},
		"it is far, and one is near": {nodes: []string{"far", "up"}, at: "1:8200", took: 200 * time.Millisecond},
		"all are down":               {nodes: []string{"down", "down"}, took: time.Second, err: os.ErrDeadlineExceeded},
		"more than there is time":    {nodes: []string{"down", "down", "down", "down", "down", "down", "up"}, took: time.Second, err: os.ErrDeadlineExceeded},
		"all refuse":                 {nodes: []string{"", ""}, err: errRefused},
		"one is down, one refuses":   {nodes: []string{"down", ""}, took: time.Second, err: os.ErrDeadlineExceeded},
	} {
		bubble.Test(t, func(t *testing.T) {
			h := &hosts{nodes: test.nodes}
			began := time.Now()
			conn, err := h.dialer().dial(t.Context(), "tcp", "vault.test:8200")
			require.Equal(t, test.took, time.Since(began), name)
			require.True(t, errors.Is(err, test.err), "%s: %v", name, err)
			time.Sleep(time.Minute)
			if test.at == "" {
				require.ErrorContains(t, err, ":8200", "where")
				require.Zero(t, h.open.Load(), name)
				return
			}
			require.Equal(t, test.at, conn.(reached).at, name)
			require.EqualValues(t, 1, h.open.Load(), "those that came too late are closed")
		})
	}
}

// A first name server that is down makes a look-up slow, for which a connection may be worth it.
func TestAHostIsLookedUpForLongerThanItIsTried(t *testing.T) {
	for after, found := range map[time.Duration]bool{5 * time.Second: true, time.Hour: false} {
		bubble.Test(t, func(t *testing.T) {
			h := &hosts{nodes: []string{"down", "up"}}
			d := h.dialer()
			d.lookUp = func(ctx context.Context, host string) ([]string, error) {
				select {
				case <-time.After(after):
					return h.lookUp(ctx, host)
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			began := time.Now()
			conn, err := d.dial(t.Context(), "tcp", "vault.test:8200")
			if !found {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, d.find, time.Since(began))
				return
			}
			require.NoError(t, err)
			require.Equal(t, "1:8200", conn.(reached).at)
		})
	}
}

func TestAHostWithoutAnAddressIsAnError(t *testing.T) {
	d := (&hosts{}).dialer()
	_, err := d.dial(t.Context(), "tcp", "vault.test:8200")
	require.ErrorContains(t, err, "no address")
	_, err = d.dial(t.Context(), "tcp", "vault.test")
	require.Error(t, err)
}

// clusterOf has the addresses of several nodes that take connections, and what each does.
func clusterOf(t *testing.T, nodes ...http.HandlerFunc) dialer {
	t.Helper()
	at := map[string]string{}
	for n, does := range nodes {
		server := httptest.NewServer(does)
		t.Cleanup(server.Close)
		at[fmt.Sprintf("%d:8200", n)] = server.Listener.Addr().String()
	}
	d := (&hosts{nodes: make([]string, len(nodes))}).dialer()
	d.ahead, d.most = time.Hour, time.Hour // no other one because this machine is busy
	d.connect = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, at[address])
		return to{conn, node(address)}, err
	}
	return d
}

// noTLS is of nodes that are asked without.
var noTLS = Config{Address: "http://vault.test:8200"}

// askOne asks one of them, with a client of its own as each login has it.
func askOne(ctx context.Context, d dialer, config Config, safe bool) error {
	c, err := newClient(config, d)
	if err != nil {
		return err
	}
	defer c.close()
	return c.ask(ctx, request{method: http.MethodGet, path: "k", safe: safe}, nil)
}

func sealed(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprint(w, `{"errors":["Vault is sealed"]}`)
}

func well(http.ResponseWriter, *http.Request) {}

func TestANodeThatIsSealedHidesNoneThatIsNot(t *testing.T) {
	d := clusterOf(t, sealed, sealed, well)
	require.ErrorContains(t, askOne(t.Context(), d, noTLS, false), "unseal it", "a login is not tried again")
	require.NoError(t, askOne(t.Context(), d, noTLS, true), "and the other two are, one after the other")
	require.NoError(t, askOne(t.Context(), d, noTLS, false))
}

func TestANodeThatHangsHidesNoneThatDoesNot(t *testing.T) {
	ctx, late := context.WithCancelCause(t.Context())
	d := clusterOf(t, func(_ http.ResponseWriter, r *http.Request) {
		late(context.DeadlineExceeded)
		<-r.Context().Done()
	}, well)
	require.ErrorIs(t, askOne(ctx, d, noTLS, true), context.DeadlineExceeded)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, askOne(ctx, d, noTLS, false))
}
