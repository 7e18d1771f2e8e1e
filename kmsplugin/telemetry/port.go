package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
)

const (
	// maxConnections bounds the clients that are connected at once; one more takes the
	// place of the oldest.
	maxConnections = 32
	maxHeader      = 8 << 10 // bytes
	// readTimeout is how long a client may take to ask, and idleTimeout how long it may stay
	// and ask nothing. writeTimeout is longer than a Check takes.
	readTimeout  = 5 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = time.Minute
)

// A Port is where the Handler is served.
type Port struct {
	listener net.Listener
	address  string
}

// errAddress is of an address that can never be listened on.
var errAddress = errors.New("wrong address")

// Listen binds HOST:PORT, of which the port may be 0 for any that is free, or unix:///PATH, with
// the care of [kmsplugin.Bind]. It has to be served then, or closed.
func Listen(ctx context.Context, address string) (*Port, error) {
	if strings.HasPrefix(address, "unix:") {
		listener, err := kmsplugin.Bind(ctx, address)
		return &Port{listener, address}, err
	}
	host, port, err := net.SplitHostPort(address)
	if err == nil && (host == "" || port == "") {
		err = errors.New("both the host and the port have to be there")
	}
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w: write 127.0.0.1:PORT, with 0 for any that is free, or unix:///PATH; for other hosts the address that they reach this one by", errAddress, address, err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%w: another process has it: choose another port, or 0 for any that is free", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%w: no interface of this host has that address", err)
	case err != nil:
		return nil, err
	}
	return &Port{listener, listener.Addr().String()}, nil
}

// Address is what was bound, with the port that was free.
func (p *Port) Address() string { return p.address }

// Close takes the port down, if it is not served.
func (p *Port) Close() error { return p.listener.Close() }

// Serve answers until ctx ends, and takes the port down then. Requests that run are cut off.
func (p *Port) Serve(ctx context.Context, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	listener := &newest{Listener: p.listener, most: maxConnections}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = errors.Join(server.Close(), listener.Close())
	})
	err := server.Serve(listener)
	if !stop() {
		<-closed
		return nil
	}
	return errors.Join(fmt.Errorf("metrics at %s: %w", p.address, err), listener.Close())
}
