package conformance_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	base64mock "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/testing/v2"
	"k8s.io/kms/pkg/service"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
)

// An entrant is a plugin that is had as a Go module, and is run as a process of its own.
type entrant struct {
	name  string
	serve func(t *testing.T, ctx context.Context, folder, socket string)
	// prepare makes its KMS, if that is not in the process of the plugin.
	prepare func(t *testing.T, folder string)
	// Without these it cannot be rotated, broken or given another key.
	rotate, breakIt, mend, recreate func(folder string) error
}

var entrants = []entrant{
	{
		name: "atrest keyfile", serve: serveKeyFile,
		rotate:  func(folder string) error { _, err := keyFile(folder).Rotate(context.Background()); return err },
		breakIt: func(folder string) error { return os.Rename(keyFile(folder).Path(), filepath.Join(folder, "away")) },
		mend:    func(folder string) error { return os.Rename(filepath.Join(folder, "away"), keyFile(folder).Path()) },
		recreate: func(folder string) error { // and the plugin is started anew
			return os.Remove(keyFile(folder).Path())
		},
	},
	{
		name: "atrest vault", serve: serveVault, prepare: prepareVault,
		rotate:  inVault(func(v *vaulttest.Server) { v.Rotate("kek") }),
		breakIt: inVault((*vaulttest.Server).Seal),
		mend:    inVault((*vaulttest.Server).Unseal),
		recreate: inVault(func(v *vaulttest.Server) {
			v.Delete("kek")
			v.CreateKey("kek", "")
		}),
	},
	{
		name: "k8s.io/kms/pkg/service", serve: serveService,
		rotate: func(folder string) error {
			return writeVersion(folder, versionIn(folder)+1)
		},
		breakIt:  func(folder string) error { return os.WriteFile(filepath.Join(folder, "broken"), nil, 0o600) },
		mend:     func(folder string) error { return os.Remove(filepath.Join(folder, "broken")) },
		recreate: func(folder string) error { return os.Remove(filepath.Join(folder, "master")) },
	},
	{name: "k8s.io/apiserver base64 mock", serve: serveMock},
}

func keyFile(folder string) *keyfile.File { return keyfile.At(filepath.Join(folder, "kek.json")) }

func serveKeyFile(t *testing.T, ctx context.Context, folder, socket string) {
	if _, err := keyFile(folder).Create(ctx); err != nil {
		require.ErrorIs(t, err, os.ErrExist)
	}
	serveBackend(t, ctx, keyFile(folder), socket)
}

// vaults are those of the folders.
var vaults sync.Map

func inVault(do func(*vaulttest.Server)) func(folder string) error {
	return func(folder string) error {
		v, ok := vaults.Load(folder)
		if !ok {
			return errors.New("no Vault was prepared")
		}
		do(v.(*vaulttest.Server))
		return nil
	}
}

func prepareVault(t *testing.T, folder string) {
	v := vaulttest.Start(t)
	v.CreateKey("kek", "")
	vaults.Store(folder, v)
	for file, text := range map[string]string{"address": v.Address, "ca": v.CA, "token": v.RootToken} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600))
	}
}

func serveVault(t *testing.T, ctx context.Context, folder, socket string) {
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(folder, file))
		require.NoError(t, err)
		return string(text)
	}
	transit, err := vault.New(vault.Config{
		Address: read("address"), Mount: "transit", Key: "kek", TLS: vault.TLS{CAFile: read("ca")},
		Auth: vault.Auth{TokenFile: filepath.Join(folder, "token")},
	})
	require.NoError(t, err)
	serveBackend(t, ctx, transit, socket)
}

// serveBackend serves one of this repository.
func serveBackend(t *testing.T, ctx context.Context, backend kmsplugin.Backend, socket string) {
	keeper, err := kmsplugin.NewKeeper(backend, kmsplugin.Config{Poll: 100 * time.Millisecond})
	require.NoError(t, err)
	server, err := kmsplugin.Listen(ctx, "unix://"+socket, keeper)
	require.NoError(t, err)
	rest := keeper.Start(context.WithoutCancel(ctx))
	require.NoError(t, server.Serve(ctx))
	require.NoError(t, rest())
}

// serveMock is the plugin that kube-apiserver's own tests use.
func serveMock(t *testing.T, ctx context.Context, _, socket string) {
	base64mock.NewBase64Plugin(t, socket)
	<-ctx.Done()
}

// serveService is what Kubernetes offers those who write a plugin, with a service on it
// that has its keys in a folder and does what the interface asks for.
func serveService(t *testing.T, ctx context.Context, folder, socket string) {
	if _, err := os.Stat(filepath.Join(folder, "master")); err != nil {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "master"), []byte(time.Now().String()), 0o600))
		require.NoError(t, writeVersion(folder, 1))
	}
	server := service.NewGRPCService(socket, 3*time.Second, leastService{folder})
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case <-ctx.Done():
		server.Shutdown()
	case err := <-ended:
		require.NoError(t, err)
	}
}

// A version of the key of leastService is a file of its own: to be there or not is one step.
func versionFile(folder string, version int) string {
	return filepath.Join(folder, "v"+strconv.Itoa(version))
}

func writeVersion(folder string, version int) error {
	return os.WriteFile(versionFile(folder, version), nil, 0o600)
}

func versionIn(folder string) int {
	for version := 1; ; version++ {
		if _, err := os.Stat(versionFile(folder, version)); err != nil {
			return version - 1
		}
	}
}

// leastService wraps under keys that follow from one file and a version in another.
type leastService struct{ folder string }

var _ service.Service = leastService{}

// key is that of a version, and its key_id.
func (s leastService) key(version int) (cipher.AEAD, string, error) {
	if _, err := os.Stat(filepath.Join(s.folder, "broken")); err == nil {
		return nil, "", errors.New("the KMS is away")
	}
	master, err := os.ReadFile(filepath.Join(s.folder, "master"))
	if err != nil {
		return nil, "", err
	}
	mac := hmac.New(sha256.New, master)
	fmt.Fprint(mac, version)
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		return nil, "", err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	name := sha256.Sum256(fmt.Appendf(nil, "%x %d", sha256.Sum256(master), version))
	return aead, hex.EncodeToString(name[:]), err
}

func (s leastService) Status(context.Context) (*service.StatusResponse, error) {
	_, id, err := s.key(versionIn(s.folder))
	if err != nil {
		return nil, err
	}
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: id}, nil
}

func (s leastService) Encrypt(_ context.Context, _ string, plaintext []byte) (*service.EncryptResponse, error) {
	aead, id, err := s.key(versionIn(s.folder))
	if err != nil {
		return nil, err
	}
	return &service.EncryptResponse{Ciphertext: aead.Seal(nil, nil, plaintext, []byte(id)), KeyID: id}, nil
}

func (s leastService) Decrypt(_ context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	for version := versionIn(s.folder); version > 0; version-- {
		aead, id, err := s.key(version)
		if err != nil {
			return nil, err
		}
		if id == r.KeyID {
			return aead.Open(nil, nil, r.Ciphertext, []byte(id))
		}
	}
	return nil, errors.New("no key has this key_id")
}

// The environment by which the test binary becomes the process of an entrant.
const (
	entrantName   = "ATREST_CONFORMANCE_ENTRANT"
	entrantFolder = "ATREST_CONFORMANCE_FOLDER"
)

func TestServeAnEntrant(t *testing.T) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for _, e := range entrants {
		if e.name == os.Getenv(entrantName) {
			folder := os.Getenv(entrantFolder)
			fmt.Fprintln(os.Stderr, "serving", e.name)
			e.serve(t, ctx, folder, filepath.Join(folder, "kms.sock"))
			return
		}
	}
	t.Skip("this is a process for the scoreboard")
}
