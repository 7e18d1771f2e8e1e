package vault

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// A dialer connects to the first address of a host that answers. That of package net gives each 2 s at
// least, which is more than there is for all: a node that is down, and comes first, would hide those
// that are up.
type dialer struct {
	lookUp  func(ctx context.Context, host string) (addresses []string, err error)
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	// find bounds a look-up: where the first name server is down the second one is asked after 5 s. A
	// call does not wait as long, and the next one has the connection then.
	find  time.Duration
	most  time.Duration // for all addresses
	ahead time.Duration // how long one is tried alone
	agree time.Duration // how long TLS may take
	// avoided is the address of a node that could not answer, did not, or had no TLS that is right; those
	// after it come first.
	avoided *atomic.Pointer[string]
}

func newDialer() dialer {
	return dialer{net.DefaultResolver.LookupHost, new(net.Dialer).DialContext, 12 * time.Second, time.Second, 200 * time.Millisecond, 2 * time.Second, new(atomic.Pointer[string])}
}

// avoid has a node tried after all others of its host.
func (d dialer) avoid(node net.Addr) {
	address := node.String()
	d.avoided.Store(&address)
}

type dialed struct {
	net.Conn
	err error
}

func (d dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	left, err := d.addresses(ctx, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, d.most)
	defer cancel()
	answers, running := make(chan dialed, len(left)), 0
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			if len(left) > 0 {
				go func(to string) {
					conn, err := d.connect(ctx, network, to)
					answers <- dialed{conn, err}
				}(left[0])
				left, running = left[1:], running+1
				next.Reset(d.ahead)
			}
		case a := <-answers:
			running--
			switch {
			case a.err == nil:
				go hangUp(answers, running)
				return a.Conn, nil
			case running+len(left) == 0:
				return nil, a.err
			}
			next.Reset(0)
		case <-ctx.Done():
			go hangUp(answers, running)
			return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: %w", address, os.ErrDeadlineExceeded)}
		}
	}
}

// dialTLS connects, and agrees on TLS. A node with which that cannot be is avoided: it hangs, or its
// certificate has run out, which each node has of its own.
func (d dialer) dialTLS(ctx context.Context, network, address string, config *tls.Config) (net.Conn, error) {
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address) // as dial has
	}
	ctx, cancel := context.WithTimeout(ctx, d.agree)
	defer cancel()
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // or nobody waits for it
			d.avoid(conn.RemoteAddr())
		}
		_ = conn.Close()
		return nil, fmt.Errorf("TLS with %s: %w", conn.RemoteAddr(), err)
	}
	return secured, nil
}

// addresses are those of a host, each with the port.
func (d dialer) addresses(ctx context.Context, address string) (all []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.find)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	found, err := d.lookUp(ctx, host)
	if err == nil && len(found) == 0 {
		err = errors.New("the host has no address")
	}
	for _, ip := range found {
		all = append(all, net.JoinHostPort(ip, port))
	}
	if avoided := d.avoided.Load(); avoided != nil {
		at := slices.Index(all, *avoided) + 1
		all = slices.Concat(all[at:], all[:at])
	}
	return all, err
}

// hangUp closes the connections that came too late.
func hangUp(answers <-chan dialed, running int) {
	for range running {
		if a := <-answers; a.err == nil {
			_ = a.Close()
		}
	}
}
