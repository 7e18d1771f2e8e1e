package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

func read(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.Status + "\n" + string(body)
}

func TestMetricsAndHealthAreServedOnRequest(t *testing.T) {
	path, infos := twoKeys(t)
	endpoint, file := plugintest.Endpoint(t), filepath.Join(t.TempDir(), "address")
	var address string
	code, log := serveUntil(t, []string{"--key-file", path, "--listen", endpoint, "--metrics-address", "127.0.0.1:0", "--metrics-address-file", file}, func() {
		written, err := os.ReadFile(file)
		require.NoError(t, err)
		address = strings.TrimSpace(string(written))
		_, err = plugintest.Dial(t, endpoint).Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
		require.NoError(t, err)
		for _, path := range []string{"/livez", "/readyz", "/healthz"} {
			require.Equal(t, "200 OK\nok\n", read(t, "http://"+address+path))
		}
		metrics := read(t, "http://"+address+"/metrics")
		require.Contains(t, metrics, `atrest_kms_plugin_requests_total{code="OK",method="Encrypt"} 1`)
		require.Contains(t, metrics, `atrest_kms_plugin_announced_info{key_id_hash="`+infos[1].Hash+`"} 1`)
		require.Contains(t, metrics, "atrest_kms_plugin_healthy 1")
		require.NoError(t, os.Rename(path, path+".away"))
		require.Equal(t, "503 Service Unavailable\nnot well, Unavailable: see the log of the plugin\n", read(t, "http://"+address+"/healthz"))
		require.Contains(t, read(t, "http://"+address+"/readyz"), "503")
		require.Contains(t, read(t, "http://"+address+"/livez"), "200")
	})
	require.Equal(t, exitDone, code, log)
	require.Contains(t, log, `metrics="`+address+`"`)
	require.NoFileExists(t, file)
	_, err := net.Dial("tcp", address)
	require.Error(t, err)
}

// While one process takes the place of another both write the file.
func TestTheAddressOfTheNextPluginStays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "address")
	o := portOptions{address: "127.0.0.1:0", file: file}
	first, err := o.open(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, o.write(first))
	second, err := o.open(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, o.write(second))
	require.NoError(t, first.close())
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, second.Address(), strings.TrimSpace(string(written)))
	require.NoError(t, second.close())
	require.NoFileExists(t, file)
}

func TestASecondPluginLeavesTheAddressOfTheOneThatServes(t *testing.T) {
	path, _ := newKeyFile(t)
	file := filepath.Join(t.TempDir(), "address")
	args := []string{"--key-file", path, "--listen", plugintest.Endpoint(t), "--metrics-address", "127.0.0.1:0", "--metrics-address-file", file}
	code, log := serveUntil(t, args, func() {
		before, err := os.ReadFile(file)
		require.NoError(t, err)
		got := runCommand(t, append([]string{"keyfile", "serve"}, args...)...)
		require.Equal(t, exitSocketInUse, got.code, got.stderr)
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
	})
	require.Equal(t, exitDone, code, log)
}

func TestNothingIsServedOverHTTPUnasked(t *testing.T) {
	path, _ := newKeyFile(t)
	code, log := serveUntil(t, []string{"--key-file", path, "--listen", plugintest.Endpoint(t)}, func() {})
	require.Equal(t, exitDone, code, log)
	require.NotContains(t, log, "metrics=")
}

func TestWrongAddressesOfMetrics(t *testing.T) {
	path, _ := newKeyFile(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	folder := t.TempDir()
	for name, test := range map[string]struct {
		args   []string
		code   int
		remedy string
	}{
		"no host":          {[]string{"--metrics-address", ":9090"}, exitUsage, "write 127.0.0.1:PORT"},
		"no folder of it":  {[]string{"--metrics-address", "unix:///nowhere/x"}, exitUsage, "mkdir -p"},
		"two slashes":      {[]string{"--metrics-address", "unix://x"}, exitUsage, "write three, unix:///x"},
		"abstract":         {[]string{"--metrics-address", "unix:///@x"}, exitUsage, "abstract socket"},
		"a high port":      {[]string{"--metrics-address", "127.0.0.1:99999"}, exitUsage, "invalid port"},
		"not of here":      {[]string{"--metrics-address", "192.0.2.1:9090"}, exitUsage, "no interface of this host has that address"},
		"a URL":            {[]string{"--metrics-address", "http://127.0.0.1:0"}, exitUsage, "write 127.0.0.1:PORT"},
		"taken":            {[]string{"--metrics-address", taken.Addr().String()}, exitFailed, "or 0 for any that is free"},
		"file for off":     {[]string{"--metrics-address-file", "x"}, exitUsage, "with --metrics-address off"},
		"no folder":        {[]string{"--metrics-address", "127.0.0.1:0", "--metrics-address-file", "/nowhere/x"}, exitUsage, "flag --metrics-address-file"},
		"file is a folder": {[]string{"--metrics-address", "127.0.0.1:0", "--metrics-address-file", folder}, exitUsage, "flag --metrics-address-file"},
		"log format":       {[]string{"--log-format", "xml"}, exitUsage, "text or json"},
	} {
		endpoint := plugintest.Endpoint(t)
		got := runCommand(t, append([]string{"keyfile", "serve", "--key-file", path, "--listen", endpoint}, test.args...)...)
		require.Equal(t, test.code, got.code, name+got.stderr)
		require.Contains(t, got.stderr, test.remedy, name)
		requireReleased(t, endpoint)
	}
}

// requireReleased checks that nothing is left of an endpoint's socket, and that it can be bound.
func requireReleased(t *testing.T, endpoint string) {
	t.Helper()
	left, err := os.ReadDir(filepath.Dir(strings.TrimPrefix(endpoint, "unix://")))
	require.NoError(t, err)
	require.Empty(t, left)
	listener, err := net.Listen("unix", strings.TrimPrefix(endpoint, "unix://"))
	require.NoError(t, err)
	require.NoError(t, listener.Close())
}

// A start that fails once the sockets are bound gives all of them back at once, while the process
// lives on.
func TestAFailedStartReleasesWhatItHasBound(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "kek.json")
	damaged, _ := newKeyFile(t)
	require.NoError(t, os.Truncate(damaged, 10))
	for path, code := range map[string]int{missing: exitNoKeyFile, damaged: exitBadKeyFile} {
		endpoint, metrics, file := plugintest.Endpoint(t), plugintest.Endpoint(t), filepath.Join(t.TempDir(), "address")
		got := runCommand(t, "keyfile", "serve", "--key-file", path, "--listen", endpoint, "--metrics-address", metrics, "--metrics-address-file", file)
		require.Equal(t, code, got.code, got.stderr)
		requireReleased(t, endpoint)
		requireReleased(t, metrics)
		require.NoFileExists(t, file)
	}
}

func TestTheLogAsJSON(t *testing.T) {
	path, infos := twoKeys(t)
	endpoint := plugintest.Endpoint(t)
	code, log := serveUntil(t, []string{"--key-file", path, "--listen", endpoint, "--log-format", "json", "-v", "2"}, func() {
		_, err := plugintest.Dial(t, endpoint).Decrypt(t.Context(), &kmsapi.DecryptRequest{Ciphertext: []byte("c"), KeyId: "other", Uid: "uid-7"})
		require.Error(t, err)
	})
	require.Equal(t, exitDone, code, log)
	said := map[string]map[string]any{}
	for line := range strings.Lines(log) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields), line)
		said[fields["msg"].(string)] = fields
	}
	require.Equal(t, infos[1].KeyID, said["DEKs are wrapped under another key_id from now on"]["keyID"])
	require.Equal(t, endpoint, said["serving KMS v2"]["endpoint"])
	require.Equal(t, "uid-7", said["call failed"]["uid"])
	require.Contains(t, said["call failed"]["err"], "unknown key_id")
}

func TestAnInstanceHasItsNameInTheLogAndTheMetrics(t *testing.T) {
	path, _ := newKeyFile(t)
	endpoint, file := plugintest.Endpoint(t), filepath.Join(t.TempDir(), "address")
	args := []string{"--key-file", path, "--listen", endpoint, "--metrics-address", "127.0.0.1:0", "--metrics-address-file", file, "--instance"}
	code, log := serveUntil(t, append(args, "secrets-a"), func() {
		address, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, read(t, "http://"+strings.TrimSpace(string(address))+"/metrics"), `atrest_kms_plugin_healthy{plugin_instance="secrets-a"}`)
	})
	require.Equal(t, exitDone, code, log)
	for line := range strings.Lines(log) {
		require.Contains(t, line, `instance="secrets-a"`)
	}
	code, log = serveUntil(t, append(args, "a\nb"), func() {})
	require.Equal(t, exitUsage, code)
	require.Contains(t, log, "flag --instance: a name has at most 63")
}
