package vaulttest

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/http"
)

// door is an address that can be closed and opened again.
type door struct {
	address string // of the first time, for all others
	secured *tls.Config
	handler http.Handler
	server  *http.Server
}

func newDoor(handler http.Handler) *door { return &door{handler: handler} }

func (d *door) url() string {
	if d.secured != nil {
		return "https://" + d.address
	}
	return "http://" + d.address
}

func (d *door) up() error {
	listener, err := net.Listen("tcp", cmp.Or(d.address, "127.0.0.1:0"))
	if err != nil {
		return err
	}
	d.address = listener.Addr().String()
	if d.secured != nil {
		listener = tls.NewListener(listener, d.secured)
	}
	server := &http.Server{Handler: d.handler, ErrorLog: silent}
	d.server = server
	go server.Serve(listener)
	return nil
}

func (d *door) down() error { return d.server.Close() }
