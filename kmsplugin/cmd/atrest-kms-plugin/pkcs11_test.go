//go:build cgo

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// A softHSM is a token in a folder, and the flags that name it.
type softHSM struct {
	folder, module, pinFile string
	flags                   []string
}

// newSoftHSM makes one that has no key. Where SoftHSM is not installed the test is skipped.
func newSoftHSM(t *testing.T) softHSM {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib*/*/softhsm/libsofthsm2.so")
	more, _ := filepath.Glob("/usr/lib*/softhsm/libsofthsm2.so")
	found = append(found, more...)
	if _, err := exec.LookPath("softhsm2-util"); err != nil || len(found) == 0 {
		t.Skip("there is no SoftHSM: apt-get install softhsm2")
	}
	h := softHSM{folder: plugintest.Folder(t), module: found[0]}
	h.pinFile = filepath.Join(h.folder, "pin")
	tokens, conf := filepath.Join(h.folder, "tokens"), filepath.Join(h.folder, "softhsm2.conf")
	require.NoError(t, os.Mkdir(tokens, 0o700))
	require.NoError(t, os.WriteFile(conf, []byte("directories.tokendir = "+tokens+"\nlog.level = ERROR\n"), 0o600))
	t.Setenv("SOFTHSM2_CONF", conf)
	require.NoError(t, os.WriteFile(h.pinFile, []byte("123456\n"), 0o600))
	require.NoError(t, h.initToken())
	h.flags = []string{"--module", h.module, "--token", "atrest", "--pin-file", h.pinFile, "--key", "kek"}
	return h
}

// initToken makes a token, which has no key.
func (h softHSM) initToken() error {
	out, err := exec.Command("softhsm2-util", "--init-token", "--free", "--label", "atrest", "--so-pin", "87654321", "--pin", "123456").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// run runs a command of the group as a process: a module reads its configuration once in each.
func (h softHSM) run(t *testing.T, verb string, more ...string) result {
	t.Helper()
	c := command(t, append(append([]string{"pkcs11", verb}, h.flags...), more...)...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	_ = c.Run() // the exit code tells
	return result{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func statusIs(t *testing.T, client kmsapi.KeyManagementServiceClient, keyID string) {
	t.Helper()
	require.Eventually(t, func() bool {
		answer, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
		return err == nil && answer.KeyId+"\n" == keyID
	}, time.Minute, time.Millisecond)
}

func TestATokenFromTheFirstKeyToTheNext(t *testing.T) {
	h := newSoftHSM(t)
	endpoint := plugintest.Endpoint(t)
	got := h.run(t, "serve", "--listen", endpoint)
	require.Equal(t, exitNoKeyFile, got.code, got.stderr)
	require.Contains(t, got.stderr, "pkcs11 create")
	require.NoFileExists(t, strings.TrimPrefix(endpoint, "unix://"))

	first := h.run(t, "create")
	require.Equal(t, exitDone, first.code, first.stderr)
	require.Contains(t, first.stderr, "back the token up now")
	require.Equal(t, exitFailed, h.run(t, "create").code)

	p := startProcess(t, append([]string{"pkcs11", "serve", "--listen", endpoint, "--poll", "50ms"}, h.flags...)...)
	client := plugintest.Dial(t, endpoint)
	statusIs(t, client, first.stdout)
	sealed, err := client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
	require.NoError(t, err)

	second := h.run(t, "rotate")
	require.Equal(t, exitDone, second.code, second.stderr)
	statusIs(t, client, second.stdout)
	read, err := client.Decrypt(t.Context(), &kmsapi.DecryptRequest{Ciphertext: sealed.Ciphertext, KeyId: sealed.KeyId})
	require.NoError(t, err)
	require.Equal(t, "dek", string(read.Plaintext))
	require.NoError(t, p.end(syscall.SIGTERM))
	require.NotContains(t, p.start+p.log.String(), "123456")

	table := h.run(t, "list")
	require.Equal(t, exitDone, table.code, table.stderr)
	lines := strings.Split(strings.TrimSpace(table.stdout), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[1], hashed.Short(hashed.ID(strings.TrimSpace(first.stdout))))
	require.Contains(t, lines[2], "reads and writes")
	var keys struct {
		Keys []struct{ ID, KeyID string }
	}
	require.NoError(t, json.Unmarshal([]byte(h.run(t, "list", "-o", "json").stdout), &keys))
	require.Equal(t, strings.TrimSpace(second.stdout), keys.Keys[1].KeyID)

	p = startProcess(t, append([]string{"pkcs11", "serve", "--listen", endpoint, "--pin", keys.Keys[0].ID}, h.flags...)...)
	statusIs(t, plugintest.Dial(t, endpoint), first.stdout)
	require.NoError(t, p.end(syscall.SIGTERM))
}

func TestWhatIsSetUpWronglyEndsTheCommandWithARemedy(t *testing.T) {
	h := newSoftHSM(t)
	require.Equal(t, exitDone, h.run(t, "create").code)
	open, empty, text := filepath.Join(h.folder, "open"), filepath.Join(h.folder, "empty"), filepath.Join(h.folder, "text")
	require.NoError(t, os.WriteFile(open, []byte("123456"), 0o600))
	require.NoError(t, os.Chmod(open, 0o644))
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	require.NoError(t, os.WriteFile(text, []byte("no library"), 0o600))
	for name, test := range map[string]struct {
		flags  []string
		remedy string
	}{
		"no module":              {[]string{"--module", ""}, "not given: --module"},
		"a relative module":      {[]string{"--module", "libsofthsm2.so"}, "give it in full"},
		"a module that is away":  {[]string{"--module", text + ".so"}, "name where it is"},
		"a module of text":       {[]string{"--module", text}, "ldd"},
		"no token":               {[]string{"--token", ""}, "--token or --token-serial"},
		"another token":          {[]string{"--token", "other"}, `but "atrest" with the serial number`},
		"another serial number":  {[]string{"--token-serial", "0000"}, "connect it, or name another"},
		"no PIN file":            {[]string{"--pin-file", ""}, "not given: --pin-file"},
		"a PIN file that is not": {[]string{"--pin-file", empty + ".no"}, "with mode 0600"},
		"an empty PIN file":      {[]string{"--pin-file", empty}, "one line, the PIN"},
		"an open PIN file":       {[]string{"--pin-file", open}, "chmod 600 " + open},
		"no key label":           {[]string{"--key", ""}, "not given: --key"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, verb := range []string{"serve", "create", "rotate", "list"} {
				flags := test.flags
				if verb == "serve" {
					flags = append([]string{"--listen", plugintest.Endpoint(t)}, flags...)
				}
				got := h.run(t, verb, flags...)
				require.Equal(t, exitUsage, got.code, got.stderr)
				require.Contains(t, got.stderr, test.remedy)
				require.NotContains(t, got.stderr, "123456")
				require.Empty(t, got.stdout)
			}
		})
	}
	require.Contains(t, h.run(t, "serve").stderr, "not given: --listen")
	require.Contains(t, h.run(t, "serve", "--listen", plugintest.Endpoint(t), "--sessions", "-1").stderr, "-1 sessions")
	require.Contains(t, h.run(t, "list", "-o", "yaml").stderr, "table or json")
}

func TestAKeyThatCanBeReadIsRefusedAtTheStart(t *testing.T) {
	h := newSoftHSM(t)
	if _, err := exec.LookPath("pkcs11-tool"); err != nil {
		t.Skip("there is no pkcs11-tool: apt-get install opensc")
	}
	out, err := exec.Command("pkcs11-tool", "--module", h.module, "--token-label", "atrest", "--login", "--pin", "123456", "--keygen", "--key-type", "AES:32", "--label", "kek",
		"--id", "617472310000000100000000692300000102030405060708090a0b0c0d0e0f10", "--extractable").CombinedOutput()
	require.NoError(t, err, string(out))
	got := h.run(t, "serve", "--listen", plugintest.Endpoint(t))
	require.Equal(t, exitUsage, got.code, got.stderr)
	require.Contains(t, got.stderr, "--allow-extractable")
	list := h.run(t, "list", "--allow-extractable")
	require.Equal(t, exitDone, list.code, list.stderr)
	require.Contains(t, list.stdout, "1-01020304")
}

// partial is a back end of which a part takes long to open, which it waits for when it is closed.
type partial struct{ kmsplugin.Session }

func (p partial) Open(context.Context) (kmsplugin.Session, error) { return p, nil }

func (p partial) Versions(context.Context) (kmsplugin.Versions, error) {
	return kmsplugin.Versions{}, nil
}

func (p partial) Close(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestTheFirstLookAtATokenDoesNotWaitForSessionsThatTakeLong(t *testing.T) {
	require.NoError(t, look(t.Context(), partial{}))
}

// A PIN that is refused ends nothing: what is started again tries it again, until the token locks.
func TestAPluginWithAWrongPINServesAndWaitsForTheRightOne(t *testing.T) {
	h := newSoftHSM(t)
	first := h.run(t, "create")
	require.NoError(t, os.WriteFile(h.pinFile, []byte("wrong-one\n"), 0o600))
	require.Equal(t, exitFailed, h.run(t, "list").code)
	endpoint := plugintest.Endpoint(t)
	p := startProcess(t, append([]string{"pkcs11", "serve", "--listen", endpoint, "--poll", "50ms"}, h.flags...)...)
	client := plugintest.Dial(t, endpoint)
	_, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
	require.ErrorContains(t, err, "PermissionDenied")
	require.NoError(t, os.WriteFile(h.pinFile, []byte("123456\n"), 0o600))
	statusIs(t, client, first.stdout)
	require.NoError(t, p.end(syscall.SIGTERM))
	require.NotContains(t, p.start+p.log.String(), "wrong-one")
}

func TestThePINOfTheTokenIsNoArgument(t *testing.T) {
	for _, pin := range []string{"987654", "1-0badcafe0", "secret"} {
		got := runCommand(t, "pkcs11", "serve", "--listen", "unix:///x", "--pin", pin)
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, "give it by --pin-file")
		require.NotContains(t, got.stderr, pin)
	}
	for _, command := range []string{"serve", "create", "rotate", "list"} {
		got := runCommand(t, "pkcs11", command, "987654")
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, "give it by --pin-file")
		require.NotContains(t, got.stderr, "987654")
	}
}

func TestHelpOfTheTokensTeaches(t *testing.T) {
	for _, command := range append(newPKCS11Group().Commands(), newPKCS11Group()) {
		args := []string{"pkcs11", command.Name(), "--help"}
		if command.Name() == "pkcs11" {
			args = args[1:]
		}
		got := runCommand(t, args...)
		require.Equal(t, exitDone, got.code)
		require.Contains(t, got.stdout, "Usage:")
		require.Contains(t, got.stdout, "--module /usr/lib/softhsm/libsofthsm2.so")
		for line := range strings.Lines(got.stdout) {
			require.LessOrEqual(t, len(line), 145, line)
		}
	}
}

// The commands of the page delete an old version, and the plugin goes on without it.
func TestThePageOfTokensDestroysAVersion(t *testing.T) {
	h := newSoftHSM(t)
	if _, err := exec.LookPath("pkcs11-tool"); err != nil {
		t.Skip("there is no pkcs11-tool: apt-get install opensc")
	}
	page, err := os.ReadFile("../../../docs/plugins/pkcs11.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^pkcs11-tool .*--delete-object.*$`).FindString(string(page))
	require.NotEmpty(t, line)

	first := h.run(t, "create")
	endpoint := plugintest.Endpoint(t)
	p := startProcess(t, append([]string{"pkcs11", "serve", "--listen", endpoint, "--poll", "50ms"}, h.flags...)...)
	client := plugintest.Dial(t, endpoint)
	statusIs(t, client, first.stdout)
	sealed, err := client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
	require.NoError(t, err)
	second := h.run(t, "rotate")
	statusIs(t, client, second.stdout)

	list := func() (keys []struct{ KeyID, CKAID string }) {
		var all struct {
			Keys []struct{ KeyID, CKAID string }
		}
		got := h.run(t, "list", "-o", "json")
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &all), got.stderr)
		return all.Keys
	}
	old := list()[0]
	require.Equal(t, strings.TrimSpace(first.stdout), old.KeyID)
	words := strings.Fields(strings.NewReplacer("/usr/lib/softhsm/libsofthsm2.so", h.module, "CKA_ID", old.CKAID).Replace(line))
	out, err := exec.Command(words[0], append(words[1:], "--pin", "123456")...).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Len(t, list(), 1)
	p.requireLogged(t, "a version is gone")
	statusIs(t, client, second.stdout)
	require.Eventually(t, func() bool { // once a look had time for all sessions
		_, err = client.Decrypt(t.Context(), &kmsapi.DecryptRequest{Ciphertext: sealed.Ciphertext, KeyId: sealed.KeyId})
		return err != nil && strings.Contains(err.Error(), "NotFound")
	}, time.Minute, time.Millisecond)
	require.NoError(t, p.end(syscall.SIGTERM))
}
