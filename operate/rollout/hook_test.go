//go:build unix

package rollout

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// A hook is waited for no longer than it is wanted, or than it may take, and nothing
// that it started goes on.
func TestAHookThatHangsIsLeft(t *testing.T) {
	for why, c := range map[string]struct{ wanted, allowed time.Duration }{
		"context deadline exceeded":                            {200 * time.Millisecond, 0},
		"it took longer than 200ms: give it more by --hook-ti": {time.Hour, 200 * time.Millisecond},
	} {
		hook := filepath.Join(t.TempDir(), "hook")
		require.NoError(t, os.WriteFile(hook, []byte("#!/bin/sh\nsleep 300 &\necho $! >$0.pid\nwait\n"), 0o700))
		ctx, cancel := context.WithTimeout(t.Context(), c.wanted)
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := HookedFiles{Program: hook, Timeout: c.allowed, Err: io.Discard}.Read(ctx, "cp-1")
			ended <- err
		}()
		select {
		case err := <-ended:
			require.ErrorContains(t, err, "hook read cp-1: ")
			require.ErrorContains(t, err, why)
			pid, err := strconv.Atoi(strings.TrimSpace(read(t, hook+".pid")))
			require.NoError(t, err)
			require.Eventually(t, func() bool { return !runs(pid) }, time.Minute, time.Millisecond, "what it started could write later")
		case <-time.After(20 * time.Second):
			require.Fail(t, "it is waited for on and on")
		}
	}
}

// runs reports whether a process is there and is no zombie, which nobody here waits for.
func runs(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// hooked has the files of the stages reached by a script, which knows their path.
func (r *stages) hooked(t *testing.T, path, write string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "hook")
	script := "#!/bin/sh\npath=" + path + "\ncase $1 in\nread) cat $path;;\nwrite) " + write + ";;\nesac\n"
	require.NoError(t, os.WriteFile(program, []byte(script), 0o700))
	r.files = HookedFiles{Program: program, Err: io.Discard}
}

// What a hook left half is noticed, and is this rotation's to put right.
func TestWhatAHookLeftHalfIsToldAndWrittenAgain(t *testing.T) {
	for name, write := range map[string]string{
		"it was cut off":     "head -c 100 >$path; exit 1",
		"it says it is done": "head -c 100 >$path",
	} {
		r, path := newStages(t)
		r.hooked(t, path, write)
		err := r.to(t, 1)
		require.ErrorContains(t, err, "the write left the file neither as it was nor as it was to be: put "+r.copies.path(rotation.Added, "cp-1")+" in its place", name)
		require.Equal(t, r.hashes["cp-1"][1], hashOf(t, r.copies.path(rotation.Added, "cp-1")))
		require.ErrorContains(t, r.to(t, 1), "the write left the file neither as it was nor as it was to be", "%s again", name)
		r.hooked(t, path, "cat >$path")
		require.NoError(t, r.to(t, 1), name)
		require.Equal(t, r.hashes["cp-1"][1], hashOf(t, path))
	}
}

func TestAHalfFileWithANewKeyHasNoCopy(t *testing.T) {
	r, path := newStages(t)
	r.local = true
	r.hooked(t, path, "head -c 100 >$path; exit 1")
	require.ErrorContains(t, r.to(t, 1), "let this run go on, which writes it again: no copy is kept of a file with a new key")
	r.hashes["cp-2"], r.seen = r.hashes["cp-1"], map[string]onDisk{"cp-2": {hash: r.hashes["cp-1"][1]}}
	require.ErrorContains(t, r.to(t, 1), "let this run go on, which writes it again, or make it as that of cp-2: no copy")
	r.hooked(t, path, "cat >$path")
	require.NoError(t, r.to(t, 1), "the process has it")
	require.Equal(t, r.hashes["cp-1"][1], hashOf(t, path))
	require.NoError(t, os.WriteFile(path, []byte(read(t, path)[:100]), 0o600))
	require.ErrorContains(t, r.to(t, 1), "none of this rotation's, and stays as it is", "it was whole: somebody edited it")
}

// The process that saw it may be gone.
func TestARotationGoesOnFromAFileThatWasLeftHalf(t *testing.T) {
	r := newRotation(t, exchanging, encryption)
	p, err := r.Prepare(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Folder.save(p.State))
	next := fileOf(t, "cp-1", rotation.Added)
	half := string(next[:100])
	r.Files = inMemory{"cp-1": half, "cp-2": encryption}
	_, err = r.Prepare(t.Context())
	require.ErrorContains(t, err, "configuration of cp-1", "it may be anybody's")
	require.NoError(t, r.Folder.copies().keep(rotation.Added, "cp-1", next))
	_, err = r.Prepare(t.Context())
	require.ErrorContains(t, err, "configuration of cp-1", "no write began: somebody edits it")
	require.NoError(t, r.Folder.copies().begin("cp-1", next))
	again, err := r.Prepare(t.Context())
	require.NoError(t, err)
	require.Equal(t, p.State, again.State)
	require.Equal(t, half, r.Files.(inMemory)["cp-1"], "it is written by its turn alone")
}

func TestOnlyTheBeginningOfAFileOfThisRotationIsLeftHalf(t *testing.T) {
	kept, file := copies(t.TempDir()), fileOf(t, "cp-1", rotation.Added)
	hashes, err := plannedHashes([]byte(encryption), toNew("cp-1"))
	require.NoError(t, err)
	require.NoError(t, kept.keep(rotation.Added, "cp-1", file))
	require.Nil(t, kept.whole("cp-1", hashes, file[:100]), "of which no write began")
	require.NoError(t, kept.begin("cp-1", []byte("another")))
	require.Nil(t, kept.whole("cp-1", hashes, file[:100]), "of which another write began")
	require.NoError(t, kept.begin("cp-1", file))
	require.Equal(t, file, kept.whole("cp-1", hashes, file[:1]))
	require.Nil(t, kept.whole("cp-1", hashes, nil), "nothing at all")
	require.Nil(t, kept.whole("cp-1", hashes, []byte("theirs")))
	require.Nil(t, kept.whole("cp-1", append([]string{hashed.Name(file[:100])}, hashes[1:]...), file[:100]), "of a stage that later ones begin with")
	require.Nil(t, kept.whole("cp-2", hashes, file[:100]), "of another apiserver")
	require.Nil(t, kept.whole("cp-1", hashes[:1], file[:100]), "of a rotation without stages")
	require.Nil(t, kept.whole("cp-1", []string{"a", "b", "c", "d"}, file[:100]), "of another rotation")
	require.NoError(t, kept.end("cp-1"))
	require.NoError(t, kept.end("cp-1"))
	require.Nil(t, kept.whole("cp-1", hashes, file[:100]), "of which a write ended")
}

// Whoever takes the end of a file away, which no write left half, has edited it.
func TestAnEditAtTheEndOfAFileIsNobodyElses(t *testing.T) {
	for name, reach := range map[string]func(r *stages, path string){
		"path":    func(*stages, string) {},
		"program": func(r *stages, path string) { r.hooked(t, path, "cat >$path") },
		"program, of a process that was killed": func(r *stages, path string) {
			r.hooked(t, path, "cat >$path")
			require.NoError(t, r.to(t, 1))
			require.NoError(t, r.copies.begin("cp-1", fileOf(t, "cp-1", rotation.Added)), "it is noted still, and all there")
		},
	} {
		r, path := newStages(t)
		reach(r, path)
		require.NoError(t, r.to(t, 1), name)
		edited := read(t, path)
		edited = edited[:strings.LastIndex(edited, "      - identity")]
		require.NoError(t, os.WriteFile(path, []byte(edited), 0o600))
		require.ErrorContains(t, r.to(t, 1), "none of this rotation's, and stays as it is", name)
		require.Equal(t, edited, read(t, path))
	}
}

// Somebody may save an edit between the read and the write.
func TestAnEditBetweenReadAndWriteIsKept(t *testing.T) {
	for name, reach := range map[string]func(t *testing.T, r *stages, path, edit string) Files{
		"path": func(_ *testing.T, r *stages, path, edit string) Files {
			return edited{r.files, func() { require.NoError(t, os.WriteFile(path, []byte(edit), 0o600)) }}
		},
		"program": func(t *testing.T, _ *stages, path, edit string) Files {
			return documented(t, path, `case $2 in *sha256sum*) echo '`+edit+`' >`+path+`;; esac; sh -c "$2"`)
		},
	} {
		r, path := newStages(t)
		r.files = reach(t, r, path, "theirs\n")
		err := r.to(t, 1)
		require.ErrorContains(t, err, "none of this rotation's, and stays as it is: somebody changed it, so put it back as it was: it is in "+r.copies.path(rotation.Added, "cp-1"), name)
		require.NotContains(t, err.Error(), "in its place", name)
		require.Contains(t, read(t, path), "theirs")
	}
}

// edited are files of which one is edited just before it is written.
type edited struct {
	Files
	edit func()
}

func (f edited) Write(ctx context.Context, apiserver string, was, content []byte) error {
	f.edit()
	return f.Files.Write(ctx, apiserver, was, content)
}

// It may be a program that cannot read, and the file somebody else's.
func TestAnEmptyFileIsNotWrittenOver(t *testing.T) {
	r, path := newStages(t)
	r.hooked(t, path, ": >$path")
	require.ErrorContains(t, r.to(t, 1), "the write left the file neither as it was nor as it was to be")
	r.hooked(t, path, "cat >$path")
	require.ErrorContains(t, r.to(t, 1), "so put it back as it was: it is in "+r.copies.path(rotation.Added, "cp-1"))
	require.Empty(t, read(t, path))
}

// A program can see whether it was given all of a file.
func TestAHookIsToldTheHashOfWhatItWrites(t *testing.T) {
	r, path := newStages(t)
	r.hooked(t, path, `cat >$path.new && echo "$ATREST_SHA256  $path.new" | sha256sum -c --status && mv $path.new $path`)
	require.NoError(t, r.to(t, 1))
	require.Equal(t, r.hashes["cp-1"][1], hashOf(t, path))
}

func TestOfAnEndlessFileOnlySoMuchIsRead(t *testing.T) {
	r, path := newStages(t)
	require.NoError(t, os.WriteFile(path, make([]byte, config.MaxSize+10), 0o600))
	for range 2 {
		file, err := r.files.Read(t.Context(), "cp-1")
		require.NoError(t, err)
		require.Len(t, file, config.MaxSize+1)
		r.hooked(t, path, "exit 3")
	}
}

func TestAnInterruptionIsNotToldOfAsAMountThatHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hangs")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := LocalFiles{Path: path}.Read(ctx, "cp-1")
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, err.Error(), "mount")
}

func TestAHookThatDoesNotWriteIsNoticed(t *testing.T) {
	r, path := newStages(t)
	r.hooked(t, path, "cat >/dev/null")
	require.ErrorContains(t, r.to(t, 1), "the file is as it was before, although it was written without an error: put "+r.copies.path(rotation.Added, "cp-1"))
	r.hooked(t, path, "exit 3")
	require.EqualError(t, r.to(t, 1), r.files.(HookedFiles).Program+" write cp-1: exit status 3: see what it says above")
	r.hooked(t, path, "cat >$path; exit 3")
	require.ErrorContains(t, r.to(t, 1), "exit status 3", "what it says is told, although all is well")
	require.NoError(t, r.to(t, 1))
}

func TestAHookIsAskedToReadBeforeItHasToWrite(t *testing.T) {
	r, path := newStages(t)
	r.hooked(t, path, "exit 3")
	require.NoError(t, r.files.Check(t.Context(), "cp-1"))
	require.NoError(t, os.Remove(path))
	require.ErrorContains(t, r.files.Check(t.Context(), "cp-1"), "hook read cp-1: exit status 1")
}

// interrupted are files of which a write is cut off by the end of the context.
type interrupted struct {
	inMemory
	end context.CancelFunc
}

func (f interrupted) Read(ctx context.Context, apiserver string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return f.inMemory.Read(ctx, apiserver)
}

func (f interrupted) Write(ctx context.Context, apiserver string, was, content []byte) error {
	f.end()
	_ = f.inMemory.Write(ctx, apiserver, was, content[:100])
	return ctx.Err()
}

func TestAWriteThatIsInterruptedIsLookedAtAllTheSame(t *testing.T) {
	r, _ := newStages(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.files = interrupted{inMemory{"cp-1": encryption}, cancel}
	err := r.bring(ctx, "cp-1", rotation.Added, r.hashes["cp-1"][1])
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "put "+r.copies.path(rotation.Added, "cp-1")+" in its place")
}

func TestAFileThatCannotBeReadAfterAWriteIsTold(t *testing.T) {
	r, path := newStages(t)
	r.hooked(t, path, "rm $path")
	err := r.to(t, 1)
	require.ErrorContains(t, err, "what the write left cannot be read: ")
	require.ErrorContains(t, err, "see that it is whole, or put "+r.copies.path(rotation.Added, "cp-1")+" in its place")
}

// documented is the hook that the docs show, with this file on the far end, and
// what stands for ssh.
func documented(t *testing.T, file, ssh string) HookedFiles {
	t.Helper()
	_, rest, found := strings.Cut(read(t, "../../docs/atrest.md"), "```sh\n#!/bin/sh\nset -eu\nfile=/etc/kubernetes/encryption.yaml\n")
	require.True(t, found)
	rest, _, _ = strings.Cut(rest, "```")
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "ssh"), []byte("#!/bin/sh\n"+ssh+"\n"), 0o700))
	hook := "#!/bin/sh\nset -eu\nPATH=" + folder + ":$PATH\nfile=" + file + "\n" + rest
	require.NoError(t, os.WriteFile(filepath.Join(folder, "hook"), []byte(hook), 0o700))
	return HookedFiles{Program: filepath.Join(folder, "hook"), Err: io.Discard}
}

func TestTheHookInTheDocsReplacesAFileAsAWhole(t *testing.T) {
	r, path := newStages(t)
	r.files = documented(t, path, `[ "$1" = cp-1 ] && sh -c "$2"`)
	require.NoError(t, r.to(t, 1))
	require.Equal(t, r.hashes["cp-1"][1], hashOf(t, path))
	is, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), is.Mode())

	was := read(t, path)
	r.files = documented(t, path, `case $2 in *sha256sum*) head -c 100;; esac | sh -c "$2"`)
	require.ErrorContains(t, r.to(t, 2), "hook write cp-1: exit status 1", "the connection broke")
	require.Equal(t, was, read(t, path))
}
