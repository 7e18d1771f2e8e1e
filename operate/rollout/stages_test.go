package rollout

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

const encryption = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: old, endpoint: "unix:///run/old.sock"}
  - identity: {}
`

// toNew is the change of every apiserver in these tests.
func toNew(apiserver string) []edit.Replacement {
	return []edit.Replacement{{Old: "old", New: edit.Provider{Name: "new", Endpoint: "unix:///run/" + apiserver + ".sock"}}}
}

// newStages are those of one apiserver, and its file.
func newStages(t *testing.T) (r *stages, path string) {
	folder := t.TempDir()
	path = filepath.Join(folder, "cp-1.yaml")
	require.NoError(t, os.WriteFile(path, []byte(encryption), 0o640))
	hashes, err := plannedHashes([]byte(encryption), toNew("cp-1"))
	require.NoError(t, err)
	return &stages{files: LocalFiles{Path: filepath.Join(folder, Placeholder+".yaml")},
		hashes: map[string][]string{"cp-1": hashes}, changes: toNew, copies: copies(t.TempDir())}, path
}

func (r *stages) to(t *testing.T, stage int) error {
	return r.bring(t.Context(), "cp-1", rotation.Stages[stage], r.hashes["cp-1"][stage])
}

func TestAFileIsBroughtFromStageToStage(t *testing.T) {
	r, path := newStages(t)
	for stage := range rotation.Stages {
		for range 2 { // the second time changes nothing
			require.NoError(t, r.to(t, stage))
			is, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o640), is.Mode())
			require.Equal(t, r.hashes["cp-1"][stage], hashOf(t, path))
		}
	}
	require.NotContains(t, read(t, path), "old")
	require.Contains(t, read(t, path), "/run/cp-1.sock")
	require.Equal(t, encryption, read(t, r.copies.path(rotation.Before, "cp-1")))
	for _, stage := range []int{1, 2, 1, 3, 2} { // back and forth
		require.NoError(t, r.to(t, stage))
		require.Equal(t, r.hashes["cp-1"][stage], hashOf(t, path))
	}
	r.copies = copies(t.TempDir())
	require.NoError(t, r.to(t, 1), "the file tells it")
	require.NoError(t, r.to(t, 3))
	r.copies = copies(t.TempDir())
	require.ErrorContains(t, r.to(t, 1), `put the old provider back, in front of the new one`)
}

func TestAFileOfSomebodyElseStays(t *testing.T) {
	r, path := newStages(t)
	require.NoError(t, r.to(t, 1))
	theirs := strings.Replace(encryption, "secrets", "configmaps", 1)
	require.NoError(t, os.WriteFile(path, []byte(theirs), 0o600))
	err := r.to(t, 2)
	require.ErrorContains(t, err, "none of this rotation's")
	require.ErrorContains(t, err, r.copies.path(rotation.Added, "cp-1"), "the one before would not open what was written since")
	require.Equal(t, theirs, read(t, path))
	require.Equal(t, r.hashes["cp-1"][1], hashOf(t, r.copies.path(rotation.Added, "cp-1")))

	r.copies = copies(t.TempDir())
	require.ErrorContains(t, r.to(t, 2), "put it back as it was")
}

// An earlier rotation left its copies in the same folder.
func TestACopyOfAnotherRotationIsNotOffered(t *testing.T) {
	r, path := newStages(t)
	for _, stage := range rotation.Stages {
		require.NoError(t, os.WriteFile(r.copies.path(stage, "cp-1"), []byte("another's"), 0o600))
	}
	require.NoError(t, os.WriteFile(path, []byte("theirs"), 0o600))
	require.ErrorContains(t, r.to(t, 1), "so put it back as it was: there is no copy of it in")
	require.NoError(t, os.WriteFile(path, []byte(encryption), 0o600))
	require.NoError(t, r.to(t, 1))
	require.Equal(t, encryption, read(t, r.copies.path(rotation.Before, "cp-1")))
	require.Equal(t, read(t, path), read(t, r.copies.path(rotation.Added, "cp-1")))
	require.NoError(t, os.WriteFile(path, []byte("theirs"), 0o600))
	require.ErrorContains(t, r.to(t, 1), "so put it back as it was: it is in "+r.copies.path(rotation.Added, "cp-1"))
}

// There is no copy of a file with a new key, and the one before it cannot read what is
// written since the swap.
func TestACopyThatCouldNotReadIsNotOffered(t *testing.T) {
	r, path := newStages(t)
	r.local = true
	require.NoError(t, r.to(t, 1))
	require.NoFileExists(t, r.copies.path(rotation.Added, "cp-1"))
	require.NoError(t, os.WriteFile(path, []byte("theirs"), 0o600))
	require.ErrorContains(t, r.to(t, 1), "so put it back as it was: it is in "+r.copies.path(rotation.Before, "cp-1"))
	for _, stage := range []int{2, 3} {
		require.ErrorContains(t, r.to(t, stage), "so take out of it what was changed, and nothing else: no copy is kept of a file with a new key")
	}
	r.swapped = true
	require.ErrorContains(t, r.to(t, 1), "so take out of it what was changed", "it went back to the first step")
	r.hashes["cp-2"] = r.hashes["cp-1"]
	for stage, what := range []string{", and nothing else: ", ", and nothing else, or make it as that of cp-2: "} {
		r.seen = map[string]onDisk{"cp-2": {hash: r.hashes["cp-1"][stage]}}
		require.ErrorContains(t, r.to(t, 2), what)
	}
}

func TestAFileThatCannotBeReplacedIsRefusedBefore(t *testing.T) {
	r, path := newStages(t)
	require.NoError(t, r.files.Check(t.Context(), "cp-1"))
	require.NoError(t, os.Link(path, path+".other"))
	for _, err := range []error{r.files.Check(t.Context(), "cp-1"), r.to(t, 1)} {
		require.ErrorContains(t, err, "has another name (a hard link)")
		require.ErrorContains(t, err, "or have --config-hook do it")
	}
	require.Equal(t, encryption, read(t, path))
}

func TestWhatToDoAboutAFileThatIsElsewhere(t *testing.T) {
	const one, each, hooked = "it is taken for the file of every apiserver: if each has its own, mount them here and put {apiserver} into --config, or have ssh reach them by --config 'ssh://root@{apiserver}/PATH', or name a program",
		"the file of each apiserver has to be there, mounted from its machine; else have ssh reach them by --config 'ssh://root@{apiserver}/PATH', or name a program", "see why the apiserver does not take it into use"
	absent := filepath.Join(t.TempDir(), "absent")
	for want, files := range map[string]Files{one: LocalFiles{Path: absent}, each: LocalFiles{Path: absent + Placeholder}, hooked: HookedFiles{}} {
		require.ErrorContains(t, notInEffect(files, "cp-2", "sha256:1", "sha256:2"), "the file has hash sha256:1, and cp-2 has one with hash sha256:2 in effect: "+want)
		if want != hooked {
			_, err := files.Read(t.Context(), "cp-2")
			require.ErrorContains(t, err, want)
			require.ErrorIs(t, err, os.ErrNotExist)
		}
	}
}

func TestAFileThatCannotBeReadIsNotElsewhere(t *testing.T) {
	loop := filepath.Join(t.TempDir(), "loop")
	require.NoError(t, os.Symlink(loop, loop))
	_, err := LocalFiles{Path: loop}.Read(t.Context(), "cp-1")
	require.ErrorIs(t, err, syscall.ELOOP)
	require.NotContains(t, err.Error(), "--config")
}

func TestACopyIsStoredOnce(t *testing.T) {
	kept := copies(t.TempDir())
	require.NoError(t, kept.keep(rotation.Added, "cp/1", []byte("file")))
	first, err := os.Stat(kept.path(rotation.Added, "cp/1"))
	require.NoError(t, err)
	require.NoError(t, kept.keep(rotation.Added, "cp/1", []byte("file")))
	again, err := os.Stat(kept.path(rotation.Added, "cp/1"))
	require.NoError(t, err)
	require.True(t, os.SameFile(first, again))
	require.Equal(t, os.FileMode(0o600), first.Mode())
}

// The flags are another time than those of the plan.
func TestAFileThatWasNotPlannedIsNotWritten(t *testing.T) {
	r, path := newStages(t)
	r.changes = func(string) []edit.Replacement { return toNew("elsewhere") }
	require.ErrorContains(t, r.to(t, 1), "give --endpoint and --plugin-timeout as at the beginning")
	r.changes = func(string) []edit.Replacement {
		return []edit.Replacement{{Old: "absent", New: edit.Provider{Name: "new", Endpoint: "unix:///new.sock"}}}
	}
	require.ErrorContains(t, r.to(t, 1), `there is no KMS provider "absent"`)
	require.Equal(t, encryption, read(t, path))
}

func TestAPlanThatAnApiserverWouldRefuseIsRefused(t *testing.T) {
	for text, changes := range map[string][]edit.Replacement{
		"unsupported scheme":                {{Old: "old", New: edit.Provider{Name: "new", Endpoint: "http://run"}}},
		`there is no KMS provider "absent"`: {{Old: "absent", New: edit.Provider{Name: "new", Endpoint: "unix:///new.sock"}}},
	} {
		_, err := plannedHashes([]byte(encryption), changes)
		require.ErrorContains(t, err, text)
	}
}

func TestWhatALinkLeadsToIsExchanged(t *testing.T) {
	r, path := newStages(t)
	elsewhere := filepath.Join(t.TempDir(), "real.yaml")
	require.NoError(t, os.Rename(path, elsewhere))
	require.NoError(t, os.Symlink(elsewhere, path))
	require.NoError(t, r.to(t, 1))
	require.Equal(t, r.hashes["cp-1"][1], hashOf(t, elsewhere))
	is, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, is.Mode().Type())
}

func TestAFileThatCannotBeExchangedStays(t *testing.T) {
	r, path := newStages(t)
	require.NoError(t, os.Remove(path))
	require.ErrorIs(t, r.to(t, 1), os.ErrNotExist)

	r, path = newStages(t)
	require.NoError(t, os.WriteFile(path+".copy", nil, 0o600))
	require.NoError(t, os.Remove(string(r.copies)))
	require.ErrorContains(t, r.to(t, 1), "copy of the file")
	require.Equal(t, encryption, read(t, path))
}

// A program reaches what no path does.
func TestAProgramReachesTheFiles(t *testing.T) {
	r, path := newStages(t)
	program := filepath.Join(t.TempDir(), "hook")
	script := "#!/bin/sh\ncase $1-$2 in read-cp-1) cat " + path + ";; write-cp-1) cat > " + path + ";; *) echo 'no such apiserver' >&2; exit 3;; esac\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o700))
	var said bytes.Buffer
	r.files = HookedFiles{Program: program, Err: &said}
	require.NoError(t, r.to(t, 2))
	require.Equal(t, r.hashes["cp-1"][2], hashOf(t, path))
	_, err := r.files.Read(t.Context(), "cp-9")
	require.ErrorContains(t, err, "hook read cp-9: exit status 3")
	require.Contains(t, said.String(), "no such apiserver")

	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.Error(t, r.files.Write(ctx, "cp-1", nil, nil))
	require.Equal(t, r.hashes["cp-1"][2], hashOf(t, path))
}

func hashOf(t *testing.T, path string) string {
	hashes, err := edit.Hashes([]byte(read(t, path)))
	require.NoError(t, err)
	return hashes[0]
}

func read(t *testing.T, path string) string {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}
