package side

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// Plugin is a KMS plugin that serves on a socket.
type Plugin struct {
	Endpoint string
	// Calls counts what it was asked.
	Calls Calls
	stop  func() error
}

// Calls counts the calls to a plugin. Safe for concurrent use.
type Calls struct{ Status, Encrypt, Decrypt atomic.Int64 }

// Behaviour is in what a plugin differs from the key-file plugin as it is.
type Behaviour struct {
	// Delay is how long it takes for an answer, as one on a network would.
	Delay time.Duration
	// Annotated makes it put two annotations beside each wrapped DEK.
	Annotated bool
}

// service is the key-file plugin with a behaviour, and counts.
type service struct {
	kmsplugin.Service
	Behaviour
	calls *Calls
}

func (s *service) Status(ctx context.Context) (kmsplugin.Status, error) {
	s.calls.Status.Add(1)
	if err := s.wait(ctx); err != nil {
		return kmsplugin.Status{}, err
	}
	return s.Service.Status(ctx)
}

func (s *service) Encrypt(ctx context.Context, uid string, plaintext []byte) (kmsplugin.Sealed, error) {
	s.calls.Encrypt.Add(1)
	if err := s.wait(ctx); err != nil {
		return kmsplugin.Sealed{}, err
	}
	sealed, err := s.Service.Encrypt(ctx, uid, plaintext)
	if s.Annotated {
		sealed.Annotations = annotations()
	}
	return sealed, err
}

// annotations are like those of a plugin that remembers which key of which
// region it used.
func annotations() map[string][]byte {
	return map[string][]byte{
		"local-kek.kms.bench.example.com": []byte("arn:example:kms:eu-north-1:111122223333:key/1234abcd-12ab-34cd"),
		"region.kms.bench.example.com":    []byte("eu-north-1"),
	}
}

func (s *service) Decrypt(ctx context.Context, uid string, sealed kmsplugin.Sealed) ([]byte, error) {
	s.calls.Decrypt.Add(1)
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	if s.Annotated {
		if !maps.EqualFunc(sealed.Annotations, annotations(), func(a, b []byte) bool { return string(a) == string(b) }) {
			return nil, fmt.Errorf("%w: the annotations are not those that were given out", kmsplugin.ErrInvalid)
		}
		sealed.Annotations = nil
	}
	return s.Service.Decrypt(ctx, uid, sealed)
}

// wait lets the time of an answer pass.
func (s *service) wait(ctx context.Context) error {
	if s.Delay == 0 {
		return nil
	}
	timer := time.NewTimer(s.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serve serves on endpoint until the plugin's stop is called.
func serve(ctx context.Context, endpoint string, keys kmsplugin.Service, b Behaviour) (*Plugin, error) {
	p := &Plugin{Endpoint: endpoint}
	server, err := kmsplugin.Listen(ctx, endpoint, &service{Service: keys, Behaviour: b, calls: &p.Calls}, kmsplugin.WithStopTimeout(0))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	p.stop = func() error { cancel(); return <-ended }
	return p, nil
}
