package preflight

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/kube-atrest/atrest/envelope"
	internalplugin "github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// Sample is a random DEK that a plugin has wrapped, and that is of no use but to see who opens it.
type Sample struct {
	Wrapped envelope.Wrapped
	DEK     []byte
}

// open is nil if a plugin gives the DEK back.
func (s *Sample) open(ctx context.Context, client envelope.Plugin) *Failure {
	got, err := client.Decrypt(ctx, s.Wrapped)
	return decryptFailure(got, s.DEK, err)
}

// answer is what a failure to open tells: that a plugin gave back another DEK, or answered that it
// can open no such thing, tells something, and no other failure does.
func answer(f *Failure) bundle.Answer {
	switch {
	case f == nil:
		return bundle.Yes
	case f.Problem == envelope.BadAnswer, internalplugin.OfTheValue(f.Err):
		return bundle.No
	}
	return bundle.NotSeen
}

// Evidence is what [Collect] finds of the plugins at the paths of two sockets, each call to which takes
// so long at most.
func Evidence(ctx context.Context, was, is string, timeout time.Duration) (bundle.Evidence, error) {
	var plugins []envelope.Plugin
	for _, path := range []string{was, is} {
		plugin, err := envelope.Dial(endpoint(path), timeout, nil)
		if err != nil {
			return bundle.Evidence{}, err
		}
		defer plugin.Close()
		plugins = append(plugins, plugin)
	}
	return Collect(ctx, plugins[0], plugins[1])
}

// endpoint is the URL of the path of a socket.
func endpoint(path string) envelope.Endpoint {
	return envelope.Endpoint((&url.URL{Scheme: "unix", Path: path}).String())
}

// Collect asks two plugins that run, the one in use and the one to be, for what shows whether
// they have one KEK: their key_ids, and whether each opens what the other wraps. An error says what
// was not seen, and then the evidence decides nothing that depends on it.
func Collect(ctx context.Context, was, is envelope.Plugin) (bundle.Evidence, error) {
	var e bundle.Evidence
	var wrapped, other *Sample
	var f *Failure
	if e.Was, wrapped, f = Ask(ctx, was, ""); f != nil {
		return e, fmt.Errorf("the plugin in use: %w", f)
	}
	if e.Is, other, f = Ask(ctx, is, ""); f != nil {
		return e, fmt.Errorf("the plugin to be: %w", f)
	}
	back := other.open(ctx, was)
	if e.OpenedBack = answer(back); e.OpenedBack == bundle.NotSeen {
		return e, fmt.Errorf("whether the plugin in use opens what the one to be wraps: %w", back)
	}
	there := wrapped.open(ctx, is)
	if e.Opened = answer(there); e.Opened == bundle.NotSeen {
		return e, fmt.Errorf("whether the plugin to be opens what the one in use wraps: %w", there)
	}
	return e, nil
}
