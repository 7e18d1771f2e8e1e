package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kmsapi "k8s.io/kms/apis/v2"
	kmsservice "k8s.io/kms/pkg/service"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// Sides: who wraps and unwraps.
const (
	alone     = "alone"     // the back end's session, called as the kit calls it
	keeper    = "keeper"    // the kit around it, without a socket
	plugin    = "plugin"    // the kit on a socket, called as by an apiserver
	reference = "reference" // the same session behind k8s.io/kms/pkg/service, on a socket
)

// A side wraps, and unwraps what it has wrapped.
type side struct {
	name   string
	wrap   func(ctx context.Context, dek []byte) (kmsplugin.Sealed, error)
	unwrap func(ctx context.Context, sealed kmsplugin.Sealed) ([]byte, error)
	end    func() error
}

// sidesOf starts all sides of a store. The caller ends them, also after an error.
func sidesOf(ctx context.Context, s store, folder string) (all []side, err error) {
	backend, config, end, err := s.open(ctx, folder)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	first, err := aloneSide(ctx, backend, end)
	if err != nil {
		end()
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	all = append(all, first)
	for _, start := range []func() (side, error){
		func() (side, error) { return keeperSide(ctx, backend, config) },
		func() (side, error) { return pluginSide(ctx, backend, config, "unix://"+socketIn(folder)) },
		func() (side, error) { return referenceSide(first, folder+"/reference.sock") },
	} {
		next, err := start()
		if err != nil {
			return all, fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, next)
	}
	return all, nil
}

func aloneSide(ctx context.Context, backend kmsplugin.Backend, end func()) (side, error) {
	session, err := backend.Open(ctx)
	if err != nil {
		return side{}, err
	}
	versions, err := session.Versions(ctx)
	if err != nil {
		return side{}, errors.Join(err, session.Close(ctx))
	}
	v := versions.All[versions.Writes]
	keyID := v.KeyID()
	return side{
		name: alone,
		wrap: func(ctx context.Context, dek []byte) (kmsplugin.Sealed, error) {
			ciphertext, _, err := session.Wrap(ctx, v, dek, []byte(keyID))
			return kmsplugin.Sealed{Ciphertext: ciphertext, KeyID: keyID}, err
		},
		unwrap: func(ctx context.Context, sealed kmsplugin.Sealed) ([]byte, error) {
			return session.Unwrap(ctx, v, sealed.Ciphertext, []byte(keyID))
		},
		end: func() error { defer end(); return session.Close(context.WithoutCancel(ctx)) },
	}, nil
}

func keeperSide(ctx context.Context, backend kmsplugin.Backend, config kmsplugin.Config) (side, error) {
	k, err := kmsplugin.NewKeeper(backend, config)
	if err != nil {
		return side{}, err
	}
	return side{
		name:   keeper,
		wrap:   func(ctx context.Context, dek []byte) (kmsplugin.Sealed, error) { return k.Encrypt(ctx, "", dek) },
		unwrap: func(ctx context.Context, sealed kmsplugin.Sealed) ([]byte, error) { return k.Decrypt(ctx, "", sealed) },
		end:    k.Start(ctx),
	}, nil
}

func pluginSide(ctx context.Context, backend kmsplugin.Backend, config kmsplugin.Config, endpoint string) (side, error) {
	k, err := kmsplugin.NewKeeper(backend, config)
	if err != nil {
		return side{}, err
	}
	server, err := kmsplugin.Listen(ctx, endpoint, k)
	if err != nil {
		return side{}, err
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop, served := k.Start(ctx), make(chan error, 1)
	go func() { served <- server.Serve(serving) }()
	return dialled(plugin, strings.TrimPrefix(endpoint, "unix://"), func() error {
		cancel()
		return errors.Join(<-served, stop())
	})
}

// referenceSide is the least that a plugin in Go can be: what Kubernetes offers for one.
func referenceSide(of side, path string) (side, error) {
	server := kmsservice.NewGRPCService(path, time.Second, bare{of})
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	return dialled(reference, path, func() error {
		server.Shutdown()
		return <-served
	})
}

// dialled is the other end of a socket.
func dialled(name, path string, end func() error) (side, error) {
	connection, err := grpc.NewClient("passthrough:///"+name,
		grpc.WithAuthority("localhost"), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return side{}, errors.Join(err, end())
	}
	client := kmsapi.NewKeyManagementServiceClient(connection)
	return side{
		name: name,
		wrap: func(ctx context.Context, dek []byte) (kmsplugin.Sealed, error) {
			answer, err := client.Encrypt(ctx, &kmsapi.EncryptRequest{Plaintext: dek})
			return kmsplugin.Sealed{Ciphertext: answer.GetCiphertext(), KeyID: answer.GetKeyId()}, err
		},
		unwrap: func(ctx context.Context, sealed kmsplugin.Sealed) ([]byte, error) {
			answer, err := client.Decrypt(ctx, &kmsapi.DecryptRequest{Ciphertext: sealed.Ciphertext, KeyId: sealed.KeyID})
			return answer.GetPlaintext(), err
		},
		end: func() error { return errors.Join(connection.Close(), end()) },
	}, nil
}

// bare is a session in the words of k8s.io/kms.
type bare struct{ side }

func (b bare) Status(context.Context) (*kmsservice.StatusResponse, error) {
	return &kmsservice.StatusResponse{Version: "v2", Healthz: "ok", KeyID: "bare"}, nil
}

func (b bare) Encrypt(ctx context.Context, _ string, dek []byte) (*kmsservice.EncryptResponse, error) {
	sealed, err := b.wrap(ctx, dek)
	return &kmsservice.EncryptResponse{Ciphertext: sealed.Ciphertext, KeyID: sealed.KeyID}, err
}

func (b bare) Decrypt(ctx context.Context, _ string, request *kmsservice.DecryptRequest) ([]byte, error) {
	return b.unwrap(ctx, kmsplugin.Sealed{Ciphertext: request.Ciphertext, KeyID: request.KeyID})
}

// does is an operation to repeat, by a side that unwraps what it wraps.
func (s side) does(ctx context.Context, op string) (do func() error, err error) {
	dek := []byte("as long as a DEK, used for none.")
	sealed, err := s.opens(ctx, dek)
	if err != nil {
		return nil, err
	}
	if op == "unwrap" {
		return func() error { _, err := s.unwrap(ctx, sealed); return err }, nil
	}
	return func() error { _, err := s.wrap(ctx, dek); return err }, nil
}

var errAnother = errors.New("what was unwrapped is not what was wrapped")

// opens is an error unless the side unwraps what it wraps.
func (s side) opens(ctx context.Context, dek []byte) (kmsplugin.Sealed, error) {
	sealed, err := s.wrap(ctx, dek)
	if err != nil {
		return sealed, fmt.Errorf("%s: %w", s.name, err)
	}
	got, err := s.unwrap(ctx, sealed)
	if err == nil && !bytes.Equal(got, dek) {
		err = errAnother
	}
	if err != nil {
		return sealed, fmt.Errorf("%s: %w", s.name, err)
	}
	return sealed, nil
}
