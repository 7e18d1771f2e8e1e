package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	kmsapi "k8s.io/kms/apis/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// watched keeps a log and tells when it has had all lines that are waited for.
type watched struct {
	mu sync.Mutex
	bytes.Buffer
	awaits  []string
	serving chan struct{}
}

func (w *watched) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.awaits)
	w.awaits = slices.DeleteFunc(w.awaits, func(text string) bool { return bytes.Contains(line, []byte(text)) })
	if before > 0 && len(w.awaits) == 0 {
		close(w.serving)
	}
	return w.Buffer.Write(line)
}

// serveUntil runs the command in this process, calls meanwhile once it serves and has found its
// keys, and returns its exit code and its log.
func serveUntil(t *testing.T, args []string, meanwhile func()) (int, string) {
	t.Helper()
	return serveAwaiting(t, append([]string{"keyfile", "serve"}, args...), meanwhile, announced)
}

// serveGroup does so of a back end, which may not have found its keys yet.
func serveGroup(t *testing.T, backend string, args []string, meanwhile func()) (int, string) {
	t.Helper()
	return serveAwaiting(t, append([]string{backend, "serve"}, args...), meanwhile)
}

func serveAwaiting(t *testing.T, args []string, meanwhile func(), lines ...string) (int, string) {
	t.Helper()
	log := &watched{serving: make(chan struct{}), awaits: append(lines, "serving KMS v2")}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	code := make(chan int, 1)
	go func() { code <- run(ctx, args, io.Discard, log) }()
	select {
	case <-log.serving:
		meanwhile()
		stop()
	case early := <-code:
		return early, log.String()
	}
	return <-code, log.String()
}

func TestServeFromTheFirstStartToTheNext(t *testing.T) {
	folder := plugintest.Folder(t)
	keyFile, endpoint := filepath.Join(folder, "kek.json"), "unix://"+folder+"/kms.sock"
	args := []string{"--key-file", keyFile, "--listen", endpoint}

	code, log := serveUntil(t, args, func() {})
	require.Equal(t, exitNoKeyFile, code)
	require.Contains(t, log, "serve --create")
	require.NoFileExists(t, keyFile)
	require.NoFileExists(t, strings.TrimPrefix(endpoint, "unix://"))

	var sealed *kmsapi.EncryptResponse
	code, log = serveUntil(t, append(args, "--create"), func() {
		var err error
		sealed, err = plugintest.Dial(t, endpoint).Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
		require.NoError(t, err)
	})
	require.Equal(t, exitDone, code, log)
	require.Contains(t, log, "made a new key file: keep a copy")
	require.Contains(t, log, `endpoint="`+endpoint+`"`)
	require.Contains(t, log, `keyID="`+sealed.KeyId+`"`)
	require.Contains(t, log, "stopped")

	for _, again := range [][]string{args, append(args, "--create")} {
		code, log = serveUntil(t, again, func() {
			read, err := plugintest.Dial(t, endpoint).Decrypt(t.Context(), &kmsapi.DecryptRequest{Ciphertext: sealed.Ciphertext, KeyId: sealed.KeyId})
			require.NoError(t, err)
			require.Equal(t, "dek", string(read.Plaintext))
		})
		require.Equal(t, exitDone, code, log)
		require.NotContains(t, log, "made a new key file")
	}
}

func TestCreateDoesNotReplaceADamagedFile(t *testing.T) {
	path, _ := newKeyFile(t)
	require.NoError(t, os.Truncate(path, 10))
	got := runCommand(t, "keyfile", "serve", "--create", "--key-file", path, "--listen", plugintest.Endpoint(t))
	require.Equal(t, exitBadKeyFile, got.code)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 10, info.Size())
}

func TestServeRespectsALiveSocket(t *testing.T) {
	path, _ := newKeyFile(t)
	endpoint := plugintest.Endpoint(t)
	listener, err := net.Listen("unix", strings.TrimPrefix(endpoint, "unix://"))
	require.NoError(t, err)
	defer listener.Close()
	got := runCommand(t, "keyfile", "serve", "--key-file", path, "--listen", endpoint)
	require.Equal(t, exitSocketInUse, got.code)
	require.Contains(t, got.stderr, "stop it or choose another path")
}

func TestAGroupMayConnect(t *testing.T) {
	folder := plugintest.Folder(t)
	args := []string{"--create", "--key-file", filepath.Join(folder, "kek.json"), "--listen", "unix://" + folder + "/kms.sock", "--group"}
	code, log := serveUntil(t, append(args, strconv.Itoa(os.Getegid())), func() {
		info, err := os.Lstat(filepath.Join(folder, "kms.sock"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o660), info.Mode().Perm())
	})
	require.Equal(t, exitDone, code, log)
	code, log = serveUntil(t, append(args, "no such group"), func() {})
	require.Equal(t, exitUsage, code)
	require.Contains(t, log, "flag --group: ")
}

func TestAWrongEndpointIsRefusedAndLeavesNoKeyFile(t *testing.T) {
	folder, open := plugintest.Folder(t), plugintest.Folder(t)
	path, file := filepath.Join(folder, "kek.json"), filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Chmod(open, 0o777))
	for listen, remedy := range map[string]string{
		"/run/kms.sock":                       "write unix:///path/to/plugin.sock",
		"tcp://127.0.0.1:1":                   "write unix:///path/to/plugin.sock",
		"unix://tmp/kms.sock":                 "write three, unix:///tmp/kms.sock",
		"unix:///@kms":                        "abstract socket",
		"unix:///" + strings.Repeat("x", 200): "choose a shorter folder",
		"unix://" + folder + "/no/kms.sock":   "mkdir -p",
		"unix://" + file:                      "move it away or choose another path",
		"unix://" + file + "/kms.sock":        "choose another path",
		"unix://" + open + "/kms.sock":        "chmod go-w " + open,
	} {
		got := runCommand(t, "keyfile", "serve", "--create", "--key-file", path, "--listen", listen)
		require.Equal(t, exitUsage, got.code, listen)
		require.Contains(t, got.stderr, "flag --listen: ")
		require.Contains(t, got.stderr, remedy)
		require.Contains(t, got.stderr, "run 'atrest-kms-plugin keyfile serve --help'")
		require.NoFileExists(t, path)
	}
}

func TestTwoThatMakeTheFileAtOnceServeTheSame(t *testing.T) {
	folder := plugintest.Folder(t)
	path := filepath.Join(folder, "kek.json")
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			file := keyfile.At(path)
			if err := ensure(t.Context(), file, true); err != nil {
				t.Error(n, err)
			}
		})
	}
	all.Wait()
	infos, err := keyfile.At(path).List()
	require.NoError(t, err)
	require.Len(t, infos, 1)
}

func TestAPinnedVersionWraps(t *testing.T) {
	path, first := newKeyFile(t)
	_, err := keyfile.At(path).Rotate(t.Context())
	require.NoError(t, err)
	endpoint := plugintest.Endpoint(t)
	code, log := serveUntil(t, []string{"--key-file", path, "--listen", endpoint, "--pin", first.ID}, func() {
		answer, err := plugintest.Dial(t, endpoint).Status(t.Context(), &kmsapi.StatusRequest{})
		require.NoError(t, err)
		require.Equal(t, first.KeyID, answer.KeyId)
	})
	require.Equal(t, exitDone, code, log)
}

func TestAYoungVersionWaitsUntilAllNodesHaveIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kek.json")
	first, err := keyfile.At(path, keyfile.WithClock(clocktesting.NewFakeClock(time.Now().Add(-3*time.Hour)))).Create(t.Context())
	require.NoError(t, err)
	second, err := keyfile.At(path).Rotate(t.Context())
	require.NoError(t, err)
	for holdDown, keyID := range map[string]string{"2h": first.KeyID, "0s": second.KeyID} {
		endpoint := plugintest.Endpoint(t)
		code, log := serveUntil(t, []string{"--key-file", path, "--listen", endpoint, "--hold-down", holdDown}, func() {
			answer, err := plugintest.Dial(t, endpoint).Status(t.Context(), &kmsapi.StatusRequest{})
			require.NoError(t, err)
			require.Equal(t, keyID, answer.KeyId)
		})
		require.Equal(t, exitDone, code, log)
	}
}

func TestFailedCallsAreLoggedOnRequest(t *testing.T) {
	path, _ := newKeyFile(t)
	for verbosity, logged := range map[string]bool{"0": false, "2": true} {
		endpoint := plugintest.Endpoint(t)
		code, log := serveUntil(t, []string{"--key-file", path, "--listen", endpoint, "-v", verbosity}, func() {
			_, err := plugintest.Dial(t, endpoint).Decrypt(t.Context(), &kmsapi.DecryptRequest{Ciphertext: []byte("c"), KeyId: "other", Uid: "uid-7"})
			require.Error(t, err)
		})
		require.Equal(t, exitDone, code, log)
		require.Equal(t, logged, strings.Contains(log, "uid-7"), log)
	}
}
