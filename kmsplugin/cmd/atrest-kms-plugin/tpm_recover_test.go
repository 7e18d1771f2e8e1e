package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/bubble"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// made is a file with a recovery key, which another file has.
func made(t *testing.T, chip *swtpmtest.TPM, args ...string) (path, keyFile string) {
	t.Helper()
	path, keyFile = filepath.Join(t.TempDir(), "tpm.json"), filepath.Join(t.TempDir(), "recovery-key")
	created := tpmCommand(t, chip, path, append([]string{"create", "--recovery"}, args...)...)
	require.Equal(t, exitDone, created.code, created.stderr)
	_, recoveryKey, _ := strings.Cut(created.stdout, "\n")
	require.NoError(t, os.WriteFile(keyFile, []byte(recoveryKey), 0o600))
	return path, keyFile
}

func TestARecoverySaysWhatChangedAndWhatStays(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	path, keyFile := made(t, one)
	there := filepath.Join(t.TempDir(), "tpm.json")
	first := tpmCommand(t, two, there, "recover", path, "--recovery-key-file", keyFile, "--pcrs", "sha256:7")
	require.Equal(t, exitDone, first.code, first.stderr)
	rotated := tpmCommand(t, one, path, "rotate")
	require.Equal(t, exitDone, rotated.code, rotated.stderr)

	again := tpmCommand(t, two, there, "recover", path, "--recovery-key-file", keyFile)
	require.Equal(t, exitDone, again.code, again.stderr)
	require.Equal(t, first.stdout, again.stdout, "it writes with what it did")
	infos := sealedKeys(t, path)
	require.Contains(t, again.stderr, "version "+infos[1].ID+" is new here, key_id "+infos[1].KeyID+"\n")
	require.NotContains(t, again.stderr, infos[0].KeyID)
	require.Contains(t, again.stderr, "PCRs: sha256:7, as before\n")
	require.Contains(t, again.stderr, "recovery key: the one of this file, as before")
	require.Regexp(t, `(?m)^in the copy version ([0-9a-f]{32}) wraps: "activate [0-9a-f]{32}" has it wrap here$`, again.stderr)

	asked := tpmCommand(t, two, there, "recover", path, "--recovery-key-file", keyFile, "--pcrs", "none", "--adopt-recovery")
	require.Equal(t, exitDone, asked.code, asked.stderr)
	require.Contains(t, asked.stderr, "PCRs: none, and no more sha256:7\n")
	require.Contains(t, asked.stderr, "recovery key: that of the copy from now on\n")
}

// A slowReader is somebody who types.
type slowReader struct{ io.Reader }

func (r slowReader) Read(typed []byte) (int, error) {
	time.Sleep(time.Hour)
	return r.Reader.Read(typed)
}

func TestWhoTypesTheRecoveryKeyMayTakeTheirTime(t *testing.T) {
	chip := swtpmtest.Start(t)
	path, keyFile := made(t, chip)
	recoveryKey, err := os.ReadFile(keyFile)
	require.NoError(t, err)
	bubble.Test(t, func(t *testing.T) {
		root := newRoot()
		root.SetArgs([]string{"tpm", "recover", "--tpm", chip.Device(), "--key-file", path, "--recovery-key-file", "-"})
		root.SetIn(slowReader{bytes.NewReader(recoveryKey)})
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		require.NoError(t, root.ExecuteContext(t.Context()))
	})
}

func TestAFirstRecoverySaysWhatCame(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	path, keyFile := made(t, one)
	for _, verb := range []string{"rotate", "stage"} {
		got := tpmCommand(t, one, path, verb)
		require.Equal(t, exitDone, got.code, got.stderr)
	}
	first := tpmCommand(t, two, filepath.Join(t.TempDir(), "tpm.json"), "recover", path, "--recovery-key-file", keyFile)
	require.Equal(t, exitDone, first.code, first.stderr)
	infos := sealedKeys(t, path)
	require.Len(t, infos, 3)
	for i, wraps := range []string{"", ", and wraps", ""} {
		require.Contains(t, first.stderr, "version "+infos[i].ID+" is new here, key_id "+infos[i].KeyID+wraps+"\n")
	}
	require.Contains(t, first.stderr, "PCRs: none\nrecovery key: that of the copy\nwhich version wraps")
}

func TestARecoverySaysWhatTheCopyHasNot(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	path, keyFile := made(t, one)
	there := filepath.Join(t.TempDir(), "tpm.json")
	for _, got := range []result{
		tpmCommand(t, two, there, "recover", path, "--recovery-key-file", keyFile), tpmCommand(t, one, path, "rotate"), tpmCommand(t, two, there, "rotate"),
	} {
		require.Equal(t, exitDone, got.code, got.stderr)
	}
	own := sealedKeys(t, there)[1]
	again := tpmCommand(t, two, there, "recover", path, "--recovery-key-file", keyFile)
	require.Equal(t, exitDone, again.code, again.stderr)
	require.Contains(t, again.stderr, "version "+own.ID+", key_id "+own.KeyID+", is not in the copy, and stays here")
	require.Contains(t, again.stderr, "version "+sealedKeys(t, path)[1].ID+" is new here")
	require.Len(t, sealedKeys(t, there), 3)
	inPlace := tpmCommand(t, two, there, "recover", "--recovery-key-file", keyFile)
	require.Equal(t, exitDone, inPlace.code, inPlace.stderr)
	require.NotContains(t, inPlace.stderr, "stays here")
}

func TestARecoveryThatRemovesAKeySaysSo(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	path, keyFile := made(t, one)
	there := filepath.Join(t.TempDir(), "tpm.json")
	for _, got := range []result{
		tpmCommand(t, one, path, "rotate"), tpmCommand(t, two, there, "recover", path, "--recovery-key-file", keyFile),
	} {
		require.Equal(t, exitDone, got.code, got.stderr)
	}
	gone := sealedKeys(t, path)[0]
	destroyed := runCommand(t, "tpm", "destroy", gone.ID, "--yes", "--key-file", path)
	require.Equal(t, exitDone, destroyed.code, destroyed.stderr)
	got := tpmCommand(t, two, there, "recover", path, "--recovery-key-file", keyFile)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "--remove-destroyed")
	require.Len(t, sealedKeys(t, there), 2)
	got = tpmCommand(t, two, there, "recover", path, "--recovery-key-file", keyFile, "--remove-destroyed")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Len(t, sealedKeys(t, there), 1)
	require.Contains(t, got.stderr, "version "+gone.ID+" was destroyed in the copy and is removed here for ever, with what is stored under key_id "+gone.KeyID+"\n")
}

func TestARecoverySaysWhatItTakesForDestroyedAndListShowsIt(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	path, keyFile := made(t, one)
	staged := tpmCommand(t, one, path, "stage")
	require.Equal(t, exitDone, staged.code, staged.stderr)
	gone := sealedKeys(t, path)[1]
	there, anew := filepath.Join(t.TempDir(), "tpm.json"), filepath.Join(t.TempDir(), "tpm.json")
	sound, err := os.ReadFile(path)
	require.NoError(t, err)
	destroyed := runCommand(t, "tpm", "destroy", gone.ID, "--yes", "--key-file", path)
	require.Equal(t, exitDone, destroyed.code, destroyed.stderr)
	for _, there := range []string{there, anew} {
		got := tpmCommand(t, two, there, "recover", path, "--recovery-key-file", keyFile)
		require.Equal(t, exitDone, got.code, got.stderr)
		require.NotContains(t, got.stderr, gone.ID)
		require.NotContains(t, runCommand(t, "tpm", "list", "--key-file", there).stdout, gone.ID)
	}
	require.NoError(t, os.Remove(anew))
	for _, there := range []string{there, anew} {
		got := tpmCommand(t, two, there, "recover", path, "--recovery-key-file", keyFile, "--remove-destroyed")
		require.Equal(t, exitDone, got.code, got.stderr)
		require.Contains(t, got.stderr, "version "+gone.ID+", which was not here, was destroyed in the copy")
		require.Regexp(t, `(?m)^`+gone.ID+` +- .*destroyed$`, runCommand(t, "tpm", "list", "--key-file", there).stdout)
		require.Contains(t, runCommand(t, "tpm", "list", "-o", "json", "--key-file", there).stdout, `"destroyed": [`)
	}
	require.NoError(t, os.WriteFile(path, sound, 0o600))
	got := tpmCommand(t, two, there, "recover", path, "--recovery-key-file", keyFile)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "version "+gone.ID+" was destroyed here, or in a copy")
}

// A backup can have others than the file had.
func TestARecoveryInPlaceSaysThatThePCRsAreAsTheFileSays(t *testing.T) {
	chip := swtpmtest.Start(t)
	path, keyFile := made(t, chip, "--pcrs", "sha256:7")
	got := tpmCommand(t, chip, path, "recover", "--recovery-key-file", keyFile)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stderr, "PCRs: sha256:7, as the file says")
	got = tpmCommand(t, chip, path, "recover", "--recovery-key-file", keyFile, "--pcrs", "sha256:7")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stderr, "PCRs: sha256:7, as before\n")
}

func TestAFlagOfACopyNeedsOne(t *testing.T) {
	path, keyFile := made(t, swtpmtest.Start(t))
	for _, flag := range []string{"--adopt-recovery", "--remove-destroyed"} {
		got := runCommand(t, "tpm", "recover", "--key-file", path, "--recovery-key-file", keyFile, flag)
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, flag+" is of a COPY")
	}
}

func TestANameInGroupsIsNoRecoveryKey(t *testing.T) {
	for flag, names := range map[string][]string{
		"--instance": {"kube-prod-east-0001", "lab1-rack-west-node7", "prod-east-edge-0001-kube-main"},
		"--group":    {"kube-prod-east-0001"}, "--pin": {strings.Repeat("0123456789abcdef", 4), strings.Repeat("01234567", 8)},
	} {
		for _, name := range names {
			got := runCommand(t, "tpm", "serve", "--listen", "unix:///x", "--key-file", filepath.Join(t.TempDir(), "none"), flag, name)
			require.NotContains(t, got.stderr, "looks like the recovery key", name)
		}
	}
	for _, id := range []string{strings.Repeat("01234567", 8), strings.Repeat("abcd", 16), strings.Repeat("abcd1", 8)[:32]} {
		got := runCommand(t, "tpm", "activate", id, "--key-file", filepath.Join(t.TempDir(), "none"))
		require.NotContains(t, got.stderr, "looks like the recovery key", id)
	}
}

// As "recover" reads it, or nearly.
func TestNoFormOfARecoveryKeyIsRepeated(t *testing.T) {
	const key = "ABCD-EFGH-IJKL-MNOP-QRST-UVWX-YZ23-4567-ABCD-EFGH-IJKL-MNOP-QRST-UVWX"
	path, plain := filepath.Join(t.TempDir(), "tpm.json"), strings.ReplaceAll(key, "-", "")
	for name, key := range map[string]string{
		"0 for O, 1 for I and 8 for B": strings.NewReplacer("O", "0", "I", "1", "B", "8").Replace(plain),
		"groups of eight":              "ABCDEFGH-IJKLMNOP-QRSTUVWX-YZ234567-ABCDEFGH-IJKLMNOP-QRSTUVWX",
		"two halves":                   plain[:28] + " " + plain[28:],
		"in quotes":                    `"` + key + `"`,
		"after its name":               "recovery-key=" + key,
		"after a dash":                 "x-" + key,
		"other dashes":                 strings.ReplaceAll(key, "-", "–"),
	} {
		for _, args := range [][]string{
			{"recover", key, "--recovery-key-file", "-"}, {"recover", "x", "--recovery-key-file", key}, {"rotate", key}, {"activate", key}, {"list", "-o", key},
			{"create", "--pcrs", key}, {"create", "--tpm", key}, {"serve", "--listen", key}, {"serve", "--check", key}, {"serve", "--instance", key, "--listen", "unix:///x"},
		} {
			got := runCommand(t, append(append([]string{"tpm"}, args...), "--key-file", path)...)
			require.Equal(t, exitUsage, got.code, "%s: %v: %s", name, args, got.stderr)
			shown := strings.ToUpper(got.stderr + got.stdout)
			require.NotContains(t, shown, "EFGH", "%s: %v", name, args)
		}
	}
	half := runCommand(t, "tpm", "rotate", plain[:28], plain[28:], "--key-file", path)
	require.NotContains(t, half.stderr, "ABCD")
}

func TestNoCommandRepeatsARecoveryKey(t *testing.T) {
	const key = "ABCD-EFGH-IJKL-MNOP-QRST-UVWX-YZ23-4567-ABCD-EFGH-IJKL-MNOP-QRST-UVWX"
	path := filepath.Join(t.TempDir(), "tpm.json")
	for _, key := range []string{key, strings.ToLower(key), strings.ReplaceAll(key, "-", ""), strings.ReplaceAll(key, "-", "\n"), key[:40]} {
		for _, args := range [][]string{
			{key}, {"--" + key}, {"--key-file", key}, {"reseal", "--recovery=" + key}, {"create", "--recovery", key}, {"create", "--pcrs", key},
			{"rotate", key}, {"rotate", "-" + key}, {"stage", "x", key}, {"activate", key}, {"destroy", key}, {"destroy", "x", key},
			{"list", key}, {"list", "-o", key}, {"list", "-o" + key}, {"serve", "--listen", key}, {"serve", "--check", key}, {"serve", "--tpm", key, "--listen", "unix:///x"},
			{"recover", "--recovery=" + key}, {"recover", "--adopt-recovery=" + key}, {"recover", "--adopt-recovery", key}, {"recover", "x", "--recovery-key-file", key},
			append([]string{"recover"}, strings.FieldsFunc(key, func(r rune) bool { return r == '-' || r == '\n' })...),
			append([]string{"rotate"}, strings.FieldsFunc(key, func(r rune) bool { return r == '-' || r == '\n' })...),
		} {
			got := runCommand(t, append(append([]string{"tpm"}, args...), "--key-file", path)...)
			require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
			require.NotContains(t, strings.ToUpper(got.stderr+got.stdout), "ABCD", args)
		}
	}
	for _, args := range [][]string{
		{"rotate", "x"}, {"activate", strings.Repeat("0123456789abcdef", 4)}, {"activate", "node"}, {"list", "-o", "yaml"}, {"rotate", "--key"}, {"none"},
	} {
		got := runCommand(t, append(append([]string{"tpm"}, args...), "--key-file", path)...)
		require.NotContains(t, got.stderr, "looks like the recovery key", args)
	}
}

// Nor where it is no command of the TPM's that it was typed in.
func TestNoOtherCommandRepeatsARecoveryKey(t *testing.T) {
	const key = "ABCD-EFGH-IJKL-MNOP-QRST-UVWX-YZ23-4567-ABCD-EFGH-IJKL-MNOP-QRST-UVWX"
	for _, args := range [][]string{
		{key}, {"vault", "serve", key}, {"vault", key}, {"keyfile", "activate", "x", key}, {"keyfile", "rotate", key}, {"--" + key}, {"pkcs11", "--log-level", key}, strings.Split(key, "-"),
	} {
		got := runCommand(t, args...)
		require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
		require.NotContains(t, got.stderr+got.stdout, "ABCD", args)
	}
	got := runCommand(t, "keyfil")
	require.Contains(t, got.stderr, `no command "keyfil"`)
}

// Where the path belongs somebody puts the key.
func TestARecoveryKeyOnTheCommandLineIsNotRepeated(t *testing.T) {
	const key = "ABCD-EFGH-IJKL-MNOP-QRST-UVWX-YZ23-4567-ABCD-EFGH-IJKL-MNOP-QRST-UVWX"
	path := filepath.Join(t.TempDir(), "tpm.json")
	golden, err := os.ReadFile("../../tpm/testdata/v1.json")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, golden, 0o600))
	for _, key := range []string{key, strings.ToLower(key), strings.ReplaceAll(key, "-", " "), strings.ReplaceAll(key, "-", ""), key[:40], key + "/" + key} {
		for _, args := range [][]string{
			{"--recovery-key-file", key}, {"--recovery-key-file=" + key}, {path, key, "--recovery-key-file", "-"}, {key, "--recovery-key-file", "-"},
		} {
			got := runCommand(t, append([]string{"tpm", "recover", "--key-file", path}, args...)...)
			require.Equal(t, exitUsage, got.code, got.stderr)
			require.NotContains(t, strings.ToUpper(got.stderr), "ABCD", args)
		}
	}
	short := runCommand(t, "tpm", "recover", "--key-file", path, "--recovery-key-file", "ABCD")
	require.NotContains(t, short.stderr, "ABCD")
	require.Contains(t, short.stderr, "reseal --recovery")
}

// A reader that has gone ends the process when it writes.
func TestAnOutputThatNobodyReadsLeavesTheOldRecoveryKey(t *testing.T) {
	chip := swtpmtest.Start(t)
	path, keyFile := made(t, chip)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	reader, closed, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	defer closed.Close()
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, out := range []*os.File{closed, full} {
		for _, args := range [][]string{{"reseal", "--key-file", path}, {"create", "--key-file", path + ".new"}} {
			command := command(t, append([]string{"tpm"}, append(args, "--recovery", "--tpm", chip.Device())...)...)
			command.Stdout = out
			require.Error(t, command.Run())
			if out == closed {
				require.Equal(t, syscall.SIGPIPE, command.ProcessState.Sys().(syscall.WaitStatus).Signal())
			} else {
				require.Equal(t, exitFailed, command.ProcessState.ExitCode())
			}
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, before, after)
			require.NoFileExists(t, path+".new")
		}
	}
	recovered := tpmCommand(t, chip, path, "recover", "--recovery-key-file", keyFile)
	require.Equal(t, exitDone, recovered.code, recovered.stderr)
}

func TestAChangeOfManyKeysHasMoreTime(t *testing.T) {
	require.Equal(t, 2*time.Minute, tpmTime(filepath.Join(t.TempDir(), "none"), ""))
	golden, err := os.ReadFile("../../tpm/testdata/v1.json")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "tpm.json")
	require.NoError(t, os.WriteFile(path, golden, 0o600))
	require.Equal(t, 2*time.Minute+20*time.Second, tpmTime("", path), "it has two")
}

func TestResealingWithPCRsNeedsARecoveryKey(t *testing.T) {
	chip, path := swtpmtest.Start(t), filepath.Join(t.TempDir(), "tpm.json")
	created := tpmCommand(t, chip, path, "create")
	require.Equal(t, exitDone, created.code, created.stderr)
	bound := tpmCommand(t, chip, path, "reseal", "--pcrs", "sha256:7")
	require.Equal(t, exitUsage, bound.code)
	require.Contains(t, bound.stderr, "reseal --recovery")
	bound = tpmCommand(t, chip, path, "reseal", "--pcrs", "sha256:7", "--recovery")
	require.Equal(t, exitDone, bound.code, bound.stderr)
	require.Len(t, strings.Split(strings.TrimSpace(bound.stdout), "\n"), 2)
}
