package conformance

import (
	"errors"
	"net/url"
	"strings"
)

// addressOf is what package net calls the socket of an endpoint, as an apiserver reads
// it: an absolute path, or "@name" for an abstract socket.
func addressOf(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "", err
	case u.Scheme != "unix" || u.Host != "" || len(u.Path) < 2 || u.Path[0] != '/':
		return "", errors.New("write unix:///path/to/plugin.sock")
	case strings.HasPrefix(u.Path, "/@"):
		return u.Path[1:], nil
	}
	return u.Path, nil
}

func isAbstract(address string) bool { return strings.HasPrefix(address, "@") }
