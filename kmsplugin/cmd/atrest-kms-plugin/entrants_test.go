//go:build cgo

package main

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
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	base64mock "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/testing/v2"
	"k8s.io/kms/pkg/service"

	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// An entrant is a plugin that is had as a Go module, and is run as a process of its own.
type entrant struct {
	name string
	// prepare makes its KMS.
	prepare func(t *testing.T, folder string) kms
}

// kms is what there is to do with an entrant. Without the functions after the first it cannot
// be rotated, broken or given another key, which happens while it does not run.
type kms struct {
	serve                           func() *exec.Cmd
	rotate, breakIt, mend, recreate func() error
}

var entrants = []entrant{
	{"atrest keyfile", prepareKeyFile}, {"atrest pkcs11", prepareToken}, {"atrest tpm", prepareTPM}, {"atrest vault", prepareVault},
	{"k8s.io/kms/pkg/service", prepareService},
	{"k8s.io/apiserver base64 mock", func(t *testing.T, folder string) kms { return kms{serve: serveEntrant(t, "mock", folder)} }},
}

// serveOurs is the command of this repository, which looks often.
func serveOurs(t *testing.T, folder string, args ...string) func() *exec.Cmd {
	return func() *exec.Cmd {
		return command(t, append(args, "--listen", "unix://"+socketIn(folder), "--poll", "100ms", "--hold-down", "0")...)
	}
}

// ran is an error unless a command of this repository ends well.
func ran(t *testing.T, args ...string) error {
	if got := runCommand(t, args...); got.code != exitDone {
		return errors.New(got.stderr)
	}
	return nil
}

func prepareKeyFile(t *testing.T, folder string) kms {
	path, away := filepath.Join(folder, "kek.json"), filepath.Join(folder, "away")
	return kms{
		serve:    serveOurs(t, folder, "keyfile", "serve", "--key-file", path, "--create"),
		rotate:   func() error { return ran(t, "keyfile", "rotate", "--key-file", path) },
		breakIt:  func() error { return os.Rename(path, away) },
		mend:     func() error { return os.Rename(away, path) },
		recreate: func() error { return os.Remove(path) },
	}
}

func prepareVault(t *testing.T, folder string) kms {
	v, flags := inVault(t)
	do := func(do func()) func() error { return func() error { do(); return nil } }
	return kms{
		// 64 handshakes of TLS at once would take most of what a call has, where other tests run.
		serve:    serveOurs(t, folder, append([]string{"vault", "serve", "--concurrency", "8"}, flags...)...),
		rotate:   do(func() { v.Rotate("kube") }),
		breakIt:  do(v.Seal),
		mend:     do(v.Unseal),
		recreate: do(func() { v.Delete("kube"); v.CreateKey("kube", "") }),
	}
}

func prepareToken(t *testing.T, folder string) kms {
	h := newSoftHSM(t)
	tokens, away := filepath.Join(h.folder, "tokens"), filepath.Join(h.folder, "away")
	key := func(verb string) func() error {
		return func() error {
			if got := h.run(t, verb); got.code != exitDone {
				return errors.New(got.stderr)
			}
			return nil
		}
	}
	require.NoError(t, key("create")())
	return kms{
		serve:   serveOurs(t, folder, append([]string{"pkcs11", "serve"}, h.flags...)...),
		rotate:  key("rotate"),
		breakIt: func() error { return os.Rename(tokens, away) },
		mend:    func() error { return os.Rename(away, tokens) },
		recreate: func() error {
			return errors.Join(os.RemoveAll(tokens), os.Mkdir(tokens, 0o700), h.initToken(), key("create")())
		},
	}
}

func prepareTPM(t *testing.T, folder string) kms {
	chip, path := swtpmtest.Start(t), filepath.Join(folder, "tpm.json")
	key := func(verb string) func() error {
		return func() error { return ran(t, "tpm", verb, "--tpm", chip.Device(), "--key-file", path) }
	}
	require.NoError(t, key("create")())
	return kms{
		serve:    serveOurs(t, folder, "tpm", "serve", "--tpm", chip.Device(), "--key-file", path, "--check", "100ms"),
		rotate:   key("rotate"),
		breakIt:  func() error { chip.Off(); return nil },
		mend:     func() error { chip.On(); return nil },
		recreate: func() error { return errors.Join(os.Remove(path), key("create")()) },
	}
}

func prepareService(t *testing.T, folder string) kms {
	broken := filepath.Join(folder, "broken")
	return kms{
		serve:    serveEntrant(t, "service", folder),
		rotate:   func() error { return writeVersion(folder, versionIn(folder)+1) },
		breakIt:  func() error { return os.WriteFile(broken, nil, 0o600) },
		mend:     func() error { return os.Remove(broken) },
		recreate: func() error { return os.Remove(filepath.Join(folder, "master")) },
	}
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
	entrantName   = "ATREST_SCOREBOARD_ENTRANT"
	entrantFolder = "ATREST_SCOREBOARD_FOLDER"
)

func socketIn(folder string) string { return filepath.Join(folder, "kms.sock") }

func serveEntrant(t *testing.T, name, folder string) func() *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	return func() *exec.Cmd {
		command := exec.Command(self, "-test.run=^TestServeAnEntrant$")
		command.Env = append(os.Environ(), entrantName+"="+name, entrantFolder+"="+folder)
		return command
	}
}

func TestServeAnEntrant(t *testing.T) {
	serve := map[string]func(t *testing.T, ctx context.Context, folder, socket string){"service": serveService, "mock": serveMock}[os.Getenv(entrantName)]
	if serve == nil {
		t.Skip("this is a process for the scoreboard")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	folder := os.Getenv(entrantFolder)
	fmt.Fprintln(os.Stderr, "serving", os.Getenv(entrantName))
	serve(t, ctx, folder, socketIn(folder))
}
