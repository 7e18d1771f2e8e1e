package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// terminal is one end of a pseudo-terminal; text gives what was written to it,
// once.
func terminal(t *testing.T) (tty *os.File, text func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	return tty, func() string {
		require.NoError(t, tty.Close())
		written, _ := io.ReadAll(master) // which ends in an error, as nobody has the other end open
		return string(written)
	}
}

func TestDecryptWritesToNoTerminalUnlessTold(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	config := file("encryption.yaml", `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
		"resources": [{"resources": ["secrets"], "providers": [{"identity": {}}]}]}`)
	args := []string{"decrypt", "--config", config, "--key", "/registry/secrets/default/db", file("db", `{"the":"secret"}`)}
	decrypt := func(args ...string) (code int, written, stderr string) {
		tty, text := terminal(t)
		var errors bytes.Buffer
		code = run(t.Context(), args, streams{in: &bytes.Buffer{}, out: tty, err: &errors})
		return code, text(), errors.String()
	}

	code, written, stderr := decrypt(args...)
	require.Equal(t, exitNoAnswer, code)
	require.Empty(t, written)
	require.Contains(t, stderr, "standard output is a terminal, where secrets do not belong: send it to a file, or say --print-to-terminal")

	code, written, _ = decrypt(append(args, "--print-to-terminal")...)
	require.Equal(t, exitGood, code)
	require.Contains(t, written, `{"the":"secret"}`)
}

func TestAWalkDrawsABarOnATerminal(t *testing.T) {
	server := etcdtest.Start(t)
	for i := range 300 {
		server.Store(fmt.Sprintf("/registry/pods/%03d", i), []byte("{}"))
	}
	tty, text := terminal(t)
	var stdout bytes.Buffer
	code := run(t.Context(), []string{"audit", "--endpoints", server.Endpoint()}, streams{in: &bytes.Buffer{}, out: &stdout, err: tty})
	require.Equal(t, exitGood, code)
	drawn := text()
	require.Contains(t, drawn, "33%  100 of 300 objects")
	require.Regexp(t, `\x1b\[K$`, drawn, "and leaves nothing behind")
	require.NotContains(t, stdout.String(), "\x1b")
}

func TestARewriteDrawsABarOnATerminal(t *testing.T) {
	tty, text := terminal(t)
	show, end := rewriting(tty, "secrets")
	show(migrate.Progress{Counts: migrate.Counts{Seen: 5, Rewritten: 5}, Total: 10, PerSecond: 1, Left: 5 * time.Second, Elapsed: 5 * time.Second})
	end()
	drawn := text()
	require.Contains(t, drawn, "secrets [===============               ]  50%  5 of 10 objects, 5 rewritten, 1/s, 5s left")
	require.Regexp(t, `\x1b\[K20[0-9-]{8}T[0-9:]{8}Z secrets: 5 rewritten, 0 unchanged, 0 gone, 0 failed, in 5s\r\n$`, drawn)
}

// telling is an apiserver that is well until it was asked times, and then is not. It
// gives a kubeconfig with the context "cp".
func telling(t *testing.T, times int32, asked func(n int32)) (kubeconfig string) {
	t.Helper()
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != healthz.Path {
			http.NotFound(w, r)
			return
		}
		p := healthz.Provider{Names: []string{"vault"}, Role: healthz.Reads, KeyIDHash: "sha256:1"}
		if n.Add(1) > times {
			p.Problem = "unreachable"
		}
		_ = json.NewEncoder(w).Encode(healthz.Status{ConfigHash: "sha256:c", Providers: []healthz.Provider{p}}.Told(time.Now()))
		asked(n.Load())
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	c := clientcmdapi.NewConfig()
	c.Clusters["cp"] = &clientcmdapi.Cluster{Server: server.URL}
	c.Contexts["cp"] = &clientcmdapi.Context{Cluster: "cp"}
	require.NoError(t, clientcmd.WriteToFile(*c, path))
	return path
}

func TestStatusIsColouredOnATerminalAlone(t *testing.T) {
	t.Setenv("TERM", "xterm")
	status := func() string {
		tty, text := terminal(t)
		args := []string{"status", "--apiservers", "cp", "--kubeconfig", telling(t, 0, func(int32) {}), "--without-apiservers", "any-other"}
		require.Equal(t, exitBad, run(t.Context(), args, streams{in: &bytes.Buffer{}, out: tty, err: tty}))
		return text()
	}
	require.Contains(t, status(), "  \x1b[31mcp finds the plugin of vault not well: unreachable")
	t.Setenv("NO_COLOR", "1")
	plain := status()
	require.Contains(t, plain, "  cp finds the plugin of vault not well: unreachable")
	require.NotContains(t, plain, "\x1b")
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	require.NotContains(t, status(), "\x1b")
}

// Each look is drawn over the one before, and the last one stays.
func TestStatusIsDrawnAgainOnATerminal(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	kubeconfig := telling(t, 1, func(n int32) {
		if n == 3 {
			interrupt()
		}
	})
	tty, text := terminal(t)
	args := []string{"status", "--apiservers", "cp", "--kubeconfig", kubeconfig, "--without-apiservers", "any-other", "--watch", "--interval", "1ms"}
	require.Equal(t, exitBad, run(ctx, args, streams{in: &bytes.Buffer{}, out: tty, err: tty}))
	drawn := strings.Split(text(), clearScreen)
	require.Len(t, drawn, 3)
	require.Empty(t, drawn[0])
	require.Contains(t, drawn[1], "The one apiserver is well.")
	require.Contains(t, drawn[2], "Not well: cp finds the plugin of vault not well.")
}
