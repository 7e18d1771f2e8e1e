package main

import (
	"crypto/tls"
	"fmt"
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

func newDoor(address, certificate, key string, handler http.Handler) (*door, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%s is no loopback address: its root token is printed, so it is for this machine alone", address)
	}
	d := &door{address: address, handler: handler}
	if certificate == "" {
		return d, nil
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	d.secured = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}}
	return d, nil
}

func (d *door) url() string {
	if d.secured != nil {
		return "https://" + d.address
	}
	return "http://" + d.address
}

func (d *door) up() error {
	listener, err := net.Listen("tcp", d.address)
	if err != nil {
		return err
	}
	d.address = listener.Addr().String()
	if d.secured != nil {
		listener = tls.NewListener(listener, d.secured)
	}
	server := &http.Server{Handler: d.handler}
	d.server = server
	go server.Serve(listener)
	return nil
}

func (d *door) down() error { return d.server.Close() }
