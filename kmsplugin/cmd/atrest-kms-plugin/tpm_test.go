package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// tpmCommand runs a command of the group on a TPM and a file.
func tpmCommand(t *testing.T, chip *swtpmtest.TPM, path string, args ...string) result {
	t.Helper()
	return runCommand(t, append(append([]string{"tpm"}, args...), "--tpm", chip.Device(), "--key-file", path)...)
}

// The page of exit codes has 2 for what is set up wrongly.
func TestAMachineWithoutATPMIsSetUpWrongly(t *testing.T) {
	folder := t.TempDir()
	for _, verb := range []string{"create", "reseal"} {
		path := filepath.Join(folder, verb+".json")
		if verb == "reseal" {
			require.Equal(t, exitDone, tpmCommand(t, swtpmtest.Start(t), path, "create").code)
		}
		got := runCommand(t, "tpm", verb, "--key-file", path, "--tpm", filepath.Join(folder, "none"))
		require.Equal(t, exitUsage, got.code, got.stderr)
		require.Contains(t, got.stderr, "no TPM at "+folder)
		require.Empty(t, got.stdout)
	}
}

func TestTheLifeOfAFileOfSealedKeys(t *testing.T) {
	chip, path := swtpmtest.Start(t), filepath.Join(t.TempDir(), "tpm.json")
	made := tpmCommand(t, chip, path, "create", "--recovery", "--pcrs", "sha256:7")
	require.Equal(t, exitDone, made.code, made.stderr)
	keyID, recoveryKey, _ := strings.Cut(strings.TrimSpace(made.stdout), "\n")
	require.Len(t, keyID, 64)
	require.Len(t, recoveryKey, 69)
	require.Contains(t, made.stderr, "write it down")
	require.NotContains(t, made.stderr, recoveryKey[:9])

	rotated := tpmCommand(t, chip, path, "rotate")
	require.Equal(t, exitDone, rotated.code, rotated.stderr)
	require.Contains(t, rotated.stderr, "wraps from now on")
	staged := tpmCommand(t, chip, path, "stage")
	require.Equal(t, exitDone, staged.code, staged.stderr)
	activated := tpmCommand(t, chip, path, "activate", staged.stdout[:20])
	require.Equal(t, staged.stdout, activated.stdout)
	resealed := tpmCommand(t, chip, path, "reseal", "--pcrs", "none")
	require.Equal(t, exitDone, resealed.code, resealed.stderr)

	// Another machine.
	other, moved := swtpmtest.Start(t), filepath.Join(t.TempDir(), "tpm.json")
	keyFile := filepath.Join(t.TempDir(), "recovery-key")
	require.NoError(t, os.WriteFile(keyFile, []byte(recoveryKey+"\n"), 0o600))
	recovered := tpmCommand(t, other, moved, "recover", path, "--recovery-key-file", keyFile)
	require.Equal(t, exitDone, recovered.code, recovered.stderr)
	require.Equal(t, staged.stdout, recovered.stdout)

	listed := runCommand(t, "tpm", "list", "--key-file", moved, "-o", "json")
	require.Equal(t, exitDone, listed.code, listed.stderr)
	var got struct{ Keys []tpm.KeyInfo }
	require.NoError(t, json.Unmarshal([]byte(listed.stdout), &got))
	require.Len(t, got.Keys, 3)
	require.Equal(t, keyID, got.Keys[0].KeyID)
	require.True(t, got.Keys[2].Writes)
	table := runCommand(t, "tpm", "list", "--key-file", moved)
	require.Regexp(t, `(?m)^ID +KEY_ID +CREATED +PCRS +RECOVERY +USE$`, table.stdout)
	require.Regexp(t, `(?m)^`+got.Keys[0].ID+` +sha256:\S+ +20\S+Z +- +yes +reads$`, table.stdout)
}

func TestATPMPluginServesUntilItIsToldToEnd(t *testing.T) {
	chip, folder := swtpmtest.Start(t), plugintest.Folder(t)
	path, endpoint := filepath.Join(folder, "tpm.json"), "unix://"+folder+"/kms.sock"
	made := tpmCommand(t, chip, path, "create")
	require.Equal(t, exitDone, made.code, made.stderr)
	require.Contains(t, made.stderr, "there is no recovery key")
	p := startProcess(t, "tpm", "serve", "--tpm", chip.Device(), "--key-file", path, "--listen", endpoint)
	client := plugintest.Dial(t, endpoint)
	sealed, err := client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
	require.NoError(t, err)
	require.Equal(t, made.stdout, sealed.KeyId+"\n")
	require.NoError(t, p.end(syscall.SIGTERM))
	require.Contains(t, p.log.String(), "stopped")
}

func TestWrongInputOfATPMIsAUsageError(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	path := filepath.Join(folder, "tpm.json")
	golden, err := os.ReadFile("../../tpm/testdata/v1.json")
	require.NoError(t, err)
	sound := filepath.Join(folder, "sound.json")
	require.NoError(t, os.WriteFile(sound, golden, 0o600))
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"create"}, exitUsage, "--key-file"},
		{[]string{"create", "--key-file", path, "--tpm", file}, exitUsage, "neither a device nor a socket"},
		{[]string{"create", "--key-file", path, "--tpm", ""}, exitUsage, "--tpm"},
		{[]string{"create", "--key-file", path, "--pcrs", "sha1:7", "--recovery"}, exitUsage, "banks are"},
		{[]string{"create", "--key-file", path, "--pcrs", "sha256:7"}, exitUsage, "without --recovery"},
		{[]string{"create", "--key-file", path, "--pcrs", "sha256:16", "--recovery"}, exitUsage, "resets [16] at any time"},
		{[]string{"create", "--key-file", path, "--tpm", filepath.Join(folder, "none")}, exitUsage, "switch it on in the firmware"},
		{[]string{"serve", "--key-file", path, "--listen", "unix:///x", "--check", "0s"}, exitUsage, "--check is 0s"},
		{[]string{"serve", "--key-file", path, "--listen", "unix://" + folder + "/kms.sock", "--tpm", filepath.Join(folder, "none")}, exitNoKeyFile, "create it"},
		{[]string{"serve", "--key-file", file, "--listen", "unix://" + folder + "/kms.sock", "--tpm", filepath.Join(folder, "none")}, exitBadKeyFile, "damaged"},
		{[]string{"recover", "--key-file", sound}, exitUsage, "--recovery-key-file"},
		{[]string{"recover", "--key-file", sound, "--recovery-key-file", filepath.Join(folder, "none")}, exitUsage, "no such file"},
		{[]string{"recover", "--key-file", sound, "--recovery-key-file", file}, exitUsage, "14 groups"},
		{[]string{"recover", "a", "b", "--key-file", sound, "--recovery-key-file", file}, exitUsage, "2 arguments: there is one"},
		{[]string{"rotate", "--key-file", path}, exitNoKeyFile, "create it"},
		{[]string{"activate", "nobody", "--key-file", sound}, exitFailed, "none of its 2 versions"},
		{[]string{"list", "--key-file", sound, "-o", "yaml"}, exitUsage, "table or json"},
	} {
		got := runCommand(t, append([]string{"tpm"}, test.args...)...)
		require.Equal(t, test.code, got.code, "%v: %s", test.args, got.stderr)
		require.Contains(t, got.stderr, test.says)
		require.Empty(t, got.stdout)
		require.NoFileExists(t, path)
	}
}

func TestTheRecoveryKeyComesThroughStandardInput(t *testing.T) {
	recoveryKey, err := os.ReadFile("../../tpm/testdata/v2-recovery-key")
	require.NoError(t, err)
	golden, err := os.ReadFile("../../tpm/testdata/v2.json")
	require.NoError(t, err)
	chip, path := swtpmtest.Start(t), filepath.Join(t.TempDir(), "tpm.json")
	require.NoError(t, os.WriteFile(path, golden, 0o600))
	command := command(t, "tpm", "recover", "--tpm", chip.Device(), "--key-file", path, "--recovery-key-file", "-")
	command.Stdin = bytes.NewReader(recoveryKey)
	out, err := command.Output()
	require.NoError(t, err)
	require.Equal(t, "ddea96c4cf11b557de9c3ced0296fc17ae3d231a9202716b996c8a3e56a6a467\n", string(out))
}

// The session that carries a key to the TPM is encrypted in a way that this mode forbids.
func TestATPMIsRefusedWhereItsSessionsAreForbidden(t *testing.T) {
	path, recoveryKey := filepath.Join(t.TempDir(), "tpm.json"), filepath.Join("..", "..", "tpm", "testdata", "v1-recovery-key")
	golden, err := os.ReadFile("../../tpm/testdata/v1.json")
	require.NoError(t, err)
	made := filepath.Join(t.TempDir(), "tpm.json")
	require.NoError(t, os.WriteFile(made, golden, 0o600))
	for _, args := range [][]string{
		{"create", "--key-file", path}, {"create", "--recovery", "--key-file", path}, {"rotate", "--key-file", made},
		{"reseal", "--key-file", made}, {"recover", "--key-file", made, "--recovery-key-file", recoveryKey},
	} {
		command := command(t, append([]string{"tpm"}, args...)...)
		command.Env = append(command.Env, "GODEBUG=fips140=only")
		out, err := command.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, exitFailed, command.ProcessState.ExitCode(), string(out))
		require.Contains(t, string(out), "run with fips140=on", args)
	}
}
