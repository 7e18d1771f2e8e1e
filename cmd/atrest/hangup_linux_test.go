package main

import (
	"bufio"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever tries a bundle over a connection may lose it: the credentials would stay, and plugins run for ever.
func TestATryWhoseTerminalIsGoneLeavesNoCredentials(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		require.NoError(t, os.WriteFile(folder+"/"+name, []byte(text), 0o600))
		return folder + "/" + name
	}
	config := write("encryption.yaml", `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: 1_secrets, endpoint: "unix:///run/kms/kms-1.sock"}
`)
	settings := write("vault.yaml", `apiVersion: encryption.kube-atrest.io/v1alpha1
kind: PluginSettings
vault: {address: "https://127.0.0.1:8200", keyPath: transit/keys/kube, auth: {token: {secret: login}}}
`)
	run := folder + "/run"
	require.NoError(t, os.Mkdir(run, 0o700))
	said, err := atrest("bundle", "make", "--config", config, "--plugin", "1="+settings, "--revision", "1",
		"--secret", "login/token="+write("token", "a token"), "--folder", folder+"/bundle").CombinedOutput()
	require.NoError(t, err, string(said))

	try := atrest("bundle", "try", folder+"/bundle", "--run", run, "--plugin", folder+"/none", "--wait", "24h")
	stderr, err := try.StderrPipe()
	require.NoError(t, err)
	// What is ignored stays so in whatever is started, as under nohup; what is caught does not.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	require.NoError(t, try.Start())
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "problem: start 1") {
	}
	left, err := os.ReadDir(run)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.NoError(t, try.Process.Signal(syscall.SIGHUP))
	for lines.Scan() { // to the end
	}
	require.Error(t, try.Wait())
	require.Equal(t, 2, try.ProcessState.ExitCode())
	left, err = os.ReadDir(run)
	require.NoError(t, err)
	require.Empty(t, left)
}

// atrest is the command, as a process.
func atrest(args ...string) *exec.Cmd {
	return &exec.Cmd{Path: os.Args[0], Args: append([]string{"atrest"}, args...)}
}
