package kmsplugin

import (
	"fmt"
	"net/url"
	"strings"
	"syscall"
)

// maxSocketName is the longest name the kernel takes for a socket; the C API
// ends a file's name with a NUL, which counts.
const maxSocketName = len(syscall.RawSockaddrUnix{}.Path) - 1

// parseEndpoint returns the absolute path of the socket, decoded once, as by an apiserver.
// An abstract socket (unix:///@name) is refused: while the plugin is down any local
// process may take its name, and would be given DEKs.
//
// It is stricter than apiservers, which drop the host part of unix://tmp/x.sock
// and dial /x.sock: each side would then wait for the other on its own socket.
func parseEndpoint(endpoint string) (string, error) {
	const form = "write unix:///path/to/plugin.sock"
	const escapes = "in a name write % as %25, ? as %3F and # as %23"
	parsed, err := url.Parse(endpoint)
	if err != nil {
		return "", fmt.Errorf("%w: %s; %s", err, form, escapes)
	}
	path := parsed.Path
	switch {
	case parsed.Scheme != "unix":
		return "", fmt.Errorf("scheme is %q, not unix: %s", parsed.Scheme, form)
	case parsed.Host != "" || parsed.User != nil:
		return "", fmt.Errorf("after two slashes comes a host, and a socket has none: write three, %s", strings.Replace(endpoint, "://", ":///", 1))
	case !strings.HasPrefix(path, "/"):
		return "", fmt.Errorf("path is not absolute: %s", form)
	case parsed.RawQuery != "" || parsed.ForceQuery || strings.Contains(endpoint, "#"):
		return "", fmt.Errorf("a query or a fragment means nothing here: %s; %s", form, escapes)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("a socket's name has no NUL byte: %s", form)
	}
	if strings.HasPrefix(path, "/@") {
		return "", fmt.Errorf("it is an abstract socket, whose name any local process may take while the plugin is down: %s", form)
	}
	if len(path) < 2 {
		return "", fmt.Errorf("no socket is named: %s", form)
	}
	if len(path) > maxSocketName {
		return "", fmt.Errorf("the socket's name is %d bytes, more than the kernel's %d: choose a shorter folder", len(path), maxSocketName)
	}
	return path, nil
}
