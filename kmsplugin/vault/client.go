package vault

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 1 << 20

// A client asks one Vault. It is safe for concurrent use.
type client struct {
	base  string // scheme, host and port
	nodes dialer
	// kept has the connections; it is another one once those are left.
	kept atomic.Pointer[http.Transport]
}

// A request is one question.
type request struct {
	method, path, namespace string
	token                   *secret // or nil
	body                    any
	// safe to ask twice: a connection that was cut, or a node that could not answer, is
	// tried again once.
	safe bool
	// refused is the class of an answer 400 whose text is not known here.
	refused error
	// hide are secrets in the body, which Vault may repeat in an error.
	hide []*secret
	// hasDEK is whether there is a DEK in the body or in the answer.
	hasDEK bool
}

// newClient reads the files of TLS. Its connections are HTTP/1.1: one that hangs ends with its
// call, and no other call waits in it. There is no proxy, and no redirect is followed:
// what is sent is for this Vault alone.
func newClient(c Config, nodes dialer) (*client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLS.ServerName}
	if c.TLS.CAFile != "" {
		content, err := readFile("CA", c.TLS.CAFile, maxBundle)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("%w: the CA file %s has no certificate in PEM", kmsplugin.ErrDenied, c.TLS.CAFile)
		}
	}
	if c.TLS.CertFile != "" {
		own, err := certificate(c.TLS)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	asks := &client{base: c.Address, nodes: nodes}
	asks.kept.Store(&http.Transport{
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		DialContext:  nodes.dial,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return nodes.dialTLS(ctx, network, address, config)
		},
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	})
	return asks, nil
}

func certificate(t TLS) (tls.Certificate, error) {
	cert, err := readFile("certificate", t.CertFile, maxBundle)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readFile("key", t.KeyFile, maxSecret)
	if err != nil {
		return tls.Certificate{}, err
	}
	defer clear(key)
	own, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return own, fmt.Errorf("%w: the certificate file %s and the key file %s: %w", kmsplugin.ErrDenied, t.CertFile, t.KeyFile, err)
	}
	return own, nil
}

func (c *client) close() { c.kept.Load().CloseIdleConnections() }

// ask has a question answered into out, which may be nil.
func (c *client) ask(ctx context.Context, r request, out any) error {
	body, err := json.Marshal(r.body)
	if err != nil {
		return fmt.Errorf("vault: %w", err)
	}
	defer clear(body)
	err = c.try(ctx, r, body, out)
	if f, ok := errors.AsType[failure](err); ok && f.again && r.safe && ctx.Err() == nil {
		err = c.try(ctx, r, body, out)
	}
	if err != nil {
		return fmt.Errorf("vault at %s: %s %s: %w", c.base, r.method, r.path, err)
	}
	return nil
}

// try asks once.
func (c *client) try(ctx context.Context, r request, body []byte, out any) error {
	sent := newOnce(body)
	defer sent.Close()
	on := used{of: c.kept.Load()}
	defer c.end(on.of)
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { on.conn = i.Conn }})
	asked, err := http.NewRequestWithContext(traced, r.method, c.base+"/v1/"+r.path, sent)
	if err != nil {
		return fmt.Errorf("%w: %w", kmsplugin.ErrUnavailable, err)
	}
	if r.body == nil {
		asked.Body = nil
	} else {
		asked.ContentLength = int64(len(body))
	}
	asked.Header.Set("X-Vault-Request", "true") // which an agent may insist on
	if r.namespace != "" {
		asked.Header.Set("X-Vault-Namespace", r.namespace)
	}
	if r.token != nil {
		asked.Header.Set("X-Vault-Token", r.token.text)
	}
	answer, err := on.of.RoundTrip(asked)
	if err != nil {
		return c.unanswered(ctx, on, err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	defer clear(content)
	switch {
	case err != nil:
		return c.unanswered(ctx, on, err)
	case len(content) > maxAnswer:
		return fmt.Errorf("%w: an answer of more than %d bytes: is this Vault?", kmsplugin.ErrUnavailable, maxAnswer)
	case answer.StatusCode/100 != 2:
		refused := refusal(r, answer, content)
		if refused.again {
			c.leave(on)
		}
		return refused
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(content, out); err != nil {
		return fmt.Errorf("%w: an answer that is not Vault's: is something else at this address?", kmsplugin.ErrUnavailable)
	}
	return nil
}

// unanswered is why there was no whole answer. The connection is left then, if there was one: what was
// at its other end may hang, or have gone away without a word.
func (c *client) unanswered(ctx context.Context, on used, err error) error {
	if on.conn != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		c.leave(on)
	}
	return unreached(ctx, err)
}

// used is a connection, and those that were kept with it.
type used struct {
	conn net.Conn
	of   *http.Transport
}

// leave has the next question go to another node than this connection, if there is one: a balancer of
// TCP leads no connection away from a node that it has found to be sealed. None that was kept with
// it is used again, as most of them are to the same one.
func (c *client) leave(on used) {
	if c.kept.CompareAndSwap(on.of, on.of.Clone()) {
		c.nodes.avoid(on.conn.RemoteAddr())
	}
}

// end is the end of a question. The last one that used connections which were left closes them.
func (c *client) end(used *http.Transport) {
	if used != c.kept.Load() {
		used.CloseIdleConnections()
	}
}

// once is a body of a request, which is wiped when it is sent: the transport may read it until
// it has closed it, whatever was answered.
type once struct {
	mu   sync.Mutex
	rest *bytes.Reader
	all  []byte
}

func newOnce(body []byte) *once {
	own := bytes.Clone(body)
	return &once{rest: bytes.NewReader(own), all: own}
}

func (o *once) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rest.Read(p)
}

func (o *once) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rest.Reset(nil)
	clear(o.all)
	return nil
}
