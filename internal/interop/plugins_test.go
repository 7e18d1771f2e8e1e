//lint:file-ignore SA1019 KMS v1 is deprecated, and clusters that move have it

package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsv1 "k8s.io/kms/apis/v1beta1"
	kmsv2 "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// serve runs a plugin on a socket of its own until the test ends.
func serve(t testing.TB, register func(grpc.ServiceRegistrar)) (endpoint string) {
	folder, err := os.MkdirTemp("", "kms") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	path := filepath.Join(folder, "kms.sock")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	server, served := grpc.NewServer(), make(chan struct{})
	register(server)
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
		require.NoError(t, os.RemoveAll(folder))
	})
	return "unix://" + path
}

// strict is a faultplugin that unwraps nothing unless key_id and annotations
// come back with it as they were given out. It keeps no state: any strict
// plugin unwraps what any other has wrapped.
type strict struct {
	*faultplugin.Plugin
	size int // of what is wrapped, in bytes; 0 for as it comes
}

// startStrict serves a healthy plugin under keyID.
func startStrict(t testing.TB, keyID string) (*strict, string) {
	p := &strict{Plugin: faultplugin.New(t)}
	p.Heal(keyID)
	return p, serve(t, func(r grpc.ServiceRegistrar) { kmsv2.RegisterKeyManagementServiceServer(r, p) })
}

// proof ties a wrapped DEK to what goes with it.
func proof(wrapped []byte, keyID string, annotations map[string][]byte) []byte {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q", wrapped, keyID)
	for _, k := range slices.Sorted(maps.Keys(annotations)) {
		fmt.Fprintf(sum, " %q %q", k, annotations[k])
	}
	return []byte(hex.EncodeToString(sum.Sum(nil)))
}

// Encrypt answers base64 of the DEK, a dot, the proof, and blanks up to size.
func (p *strict) Encrypt(ctx context.Context, r *kmsv2.EncryptRequest) (*kmsv2.EncryptResponse, error) {
	answer, err := p.Plugin.Encrypt(ctx, r)
	if err != nil {
		return nil, err
	}
	tied := append(append(bytes.Clone(answer.Ciphertext), '.'), proof(answer.Ciphertext, answer.KeyId, answer.Annotations)...)
	if blanks := p.size - len(tied); blanks > 0 {
		tied = append(tied, bytes.Repeat([]byte(" "), blanks)...)
	}
	answer.Ciphertext = tied
	return answer, nil
}

// Decrypt checks the proof.
func (p *strict) Decrypt(ctx context.Context, r *kmsv2.DecryptRequest) (*kmsv2.DecryptResponse, error) {
	wrapped, given, _ := bytes.Cut(bytes.TrimRight(r.GetCiphertext(), " "), []byte("."))
	if !bytes.Equal(given, proof(wrapped, r.GetKeyId(), r.GetAnnotations())) {
		return nil, status.Error(codes.InvalidArgument, "not given out like this")
	}
	return p.Plugin.Decrypt(ctx, &kmsv2.DecryptRequest{Ciphertext: wrapped, KeyId: r.GetKeyId(), Uid: r.GetUid()})
}

// pluginV1 serves KMS v1.
type pluginV1 struct {
	kmsv1.UnimplementedKeyManagementServiceServer
	*faultplugin.V1
}

func startV1(t testing.TB) string {
	return serve(t, func(r grpc.ServiceRegistrar) {
		kmsv1.RegisterKeyManagementServiceServer(r, pluginV1{V1: &faultplugin.V1{}})
	})
}

// Version is the one that there is.
func (pluginV1) Version(context.Context, *kmsv1.VersionRequest) (*kmsv1.VersionResponse, error) {
	return &kmsv1.VersionResponse{Version: "v1beta1", RuntimeName: "interop", RuntimeVersion: "1"}, nil
}

// Encrypt wraps.
func (p pluginV1) Encrypt(ctx context.Context, r *kmsv1.EncryptRequest) (*kmsv1.EncryptResponse, error) {
	wrapped, err := p.V1.Encrypt(ctx, r.GetPlain())
	return &kmsv1.EncryptResponse{Cipher: wrapped}, err
}

// Decrypt unwraps.
func (p pluginV1) Decrypt(ctx context.Context, r *kmsv1.DecryptRequest) (*kmsv1.DecryptResponse, error) {
	plain, err := p.V1.Decrypt(ctx, r.GetCipher())
	return &kmsv1.DecryptResponse{Plain: plain}, err
}
