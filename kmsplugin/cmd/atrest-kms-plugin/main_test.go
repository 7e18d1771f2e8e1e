package main

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// asCommand in the environment makes the test binary the command itself.
const asCommand = "ATREST_KMS_PLUGIN_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// command is this program as a process of its own.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(program, args...)
	command.Env = append(os.Environ(), asCommand+"=1")
	return command
}

// process is a running serve command.
type process struct {
	*exec.Cmd
	start string        // what it logged until it served
	log   *bytes.Buffer // what it logged then; whole once eof is closed
	lines chan string   // the same as it comes
	eof   chan struct{}
}

// announced is what a plugin logs that has found its keys. On a busy machine it may serve before that.
const announced = "DEKs are wrapped under another key_id"

// startServing returns once the process has logged that it serves, and has found its keys.
func startServing(t *testing.T, args ...string) *process {
	t.Helper()
	return startProcess(t, append([]string{"keyfile", "serve"}, args...)...).requireWell(t)
}

// requireWell waits until it has found its keys.
func (p *process) requireWell(t *testing.T) *process {
	t.Helper()
	if !strings.Contains(p.start, announced) {
		p.requireLogged(t, announced)
	}
	return p
}

// startProcess starts any command that serves, and returns once it has logged that it does.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	return startCommand(t, command(t, args...))
}

// startCommand does so of a command that was prepared.
func startCommand(t *testing.T, serve *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: serve, log: new(bytes.Buffer), lines: make(chan string, 100), eof: make(chan struct{})}
	stderr, err := p.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	lines := bufio.NewScanner(stderr)
	serving := false
	for !serving && lines.Scan() {
		p.start += lines.Text() + "\n"
		serving = strings.Contains(lines.Text(), "serving KMS v2")
	}
	require.True(t, serving, p.start)
	go func() {
		defer close(p.eof)
		for lines.Scan() {
			p.log.WriteString(lines.Text() + "\n")
			p.lines <- lines.Text()
		}
	}()
	return p
}

// requireLogged waits for a line with a text.
func (p *process) requireLogged(t *testing.T, text string) {
	t.Helper()
	for {
		select {
		case line := <-p.lines:
			if strings.Contains(line, text) {
				return
			}
		case <-p.eof:
			t.Fatal("it ended, and never logged " + text)
		}
	}
}

func (p *process) end(signal os.Signal) error {
	if err := p.Process.Signal(signal); err != nil {
		return err
	}
	<-p.eof
	return p.Wait()
}

func TestASignalEndsTheProcessCleanly(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			folder := plugintest.Folder(t)
			keyFile := filepath.Join(folder, "kek.json")
			p := startServing(t, "--create", "--key-file", keyFile, "--listen", "unix://"+folder+"/kms.sock")

			require.NoError(t, p.end(signal), "exit code 0")
			require.Contains(t, p.log.String(), "stopped")
			entries, err := os.ReadDir(folder)
			require.NoError(t, err)
			require.Len(t, entries, 1, "the key file alone")
		})
	}
}

// Somebody who connects and never says a word does not make a stop slow, or a failure.
func TestASignalEndsTheProcessCleanlyWhateverIsConnected(t *testing.T) {
	folder := plugintest.Folder(t)
	p := startServing(t, "--create", "--key-file", filepath.Join(folder, "kek.json"), "--listen", "unix://"+folder+"/kms.sock")
	silent, err := net.Dial("unix", folder+"/kms.sock")
	require.NoError(t, err)
	defer silent.Close()
	_, err = plugintest.Dial(t, "unix://"+folder+"/kms.sock").Status(t.Context(), &kmsapi.StatusRequest{})
	require.NoError(t, err, "connections are accepted in turn: the silent one is in")
	require.NoError(t, p.end(syscall.SIGTERM), "exit code 0")
}

func TestAKilledProcessIsReplaced(t *testing.T) {
	folder := plugintest.Folder(t)
	keyFile, endpoint := filepath.Join(folder, "kek.json"), "unix://"+folder+"/kms.sock"
	args := []string{"--create", "--key-file", keyFile, "--listen", endpoint}
	p := startServing(t, args...)
	require.Contains(t, p.start, "made a new key file")
	require.Error(t, p.end(syscall.SIGKILL))
	require.FileExists(t, folder+"/kms.sock")

	again := startServing(t, args...)
	require.NotContains(t, again.start, "made a new key file")
	client := plugintest.Dial(t, endpoint)
	answer, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
	require.NoError(t, err)
	require.Contains(t, p.start, answer.KeyId)
	require.NoError(t, again.end(syscall.SIGTERM))
}

func TestASecondProcessRotatesWhileTheFirstServes(t *testing.T) {
	folder := plugintest.Folder(t)
	keyFile, endpoint := filepath.Join(folder, "kek.json"), "unix://"+folder+"/kms.sock"
	p := startServing(t, "--create", "--key-file", keyFile, "--listen", endpoint)
	client := plugintest.Dial(t, endpoint)
	old, err := client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
	require.NoError(t, err)

	out, err := command(t, "keyfile", "rotate", "--key-file", keyFile).Output()
	require.NoError(t, err)
	require.NotEqual(t, old.KeyId+"\n", string(out))
	require.Eventually(t, func() bool {
		answer, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
		return err == nil && answer.KeyId+"\n" == string(out)
	}, time.Minute, time.Millisecond)
	read, err := client.Decrypt(t.Context(), &kmsapi.DecryptRequest{Ciphertext: old.Ciphertext, KeyId: old.KeyId})
	require.NoError(t, err)
	require.Equal(t, "dek", string(read.Plaintext))

	second := command(t, "keyfile", "serve", "--key-file", keyFile, "--listen", endpoint)
	text, err := second.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, exitSocketInUse, second.ProcessState.ExitCode(), string(text))
	require.NoError(t, p.end(syscall.SIGTERM))
	require.Contains(t, p.log.String(), announced)
}
