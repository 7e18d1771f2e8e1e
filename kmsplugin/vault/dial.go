package vault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// A dialer connects to the first address of a host that answers. That of package net gives each 2 s at
// least, which is more than there is for all: a node that is down, and comes first, would hide those
// that are up.
type dialer struct {
	lookUp  func(ctx context.Context, host string) (addresses []string, err error)
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	most    time.Duration // for all of it
	ahead   time.Duration // how long an address is tried alone
}

type dialed struct {
	net.Conn
	err error
}

func (d dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.most)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	left, err := d.lookUp(ctx, host)
	if err == nil && len(left) == 0 {
		err = errors.New("the host has no address")
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
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
				}(net.JoinHostPort(left[0], port))
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

// hangUp closes the connections that came too late.
func hangUp(answers <-chan dialed, running int) {
	for range running {
		if a := <-answers; a.err == nil {
			_ = a.Close()
		}
	}
}
