package bundle

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// filled is a folder that a person made, with a file for each part of a bundle.
func filled(t *testing.T, b *Bundle) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "node")
	require.NoError(t, os.Mkdir(folder, 0o700))
	for name, content := range b.Encode() {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	return folder
}

func TestAFolderGivesBackWhatWasWritten(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "node")
	for revision := uint64(1); revision < 4; revision++ {
		d := draft()
		d.Revision = revision
		b := made(t, d)
		require.NoError(t, b.WriteFolder(folder))
		got, err := ReadFolder(folder)
		require.NoError(t, err)
		require.Equal(t, b, got)
		require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := entry.Info()
			require.NoError(t, err)
			if info.Mode().IsRegular() {
				require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), path)
			} else if info.IsDir() {
				require.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), path)
			}
			return nil
		}))
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		require.Len(t, entries, 2, "the link and what it leads to: the former one is gone")
	}
}

func TestAFolderMayBeFilledByHand(t *testing.T) {
	b := made(t, draft())
	folder := filled(t, b)
	require.NoError(t, os.WriteFile(filepath.Join(folder, ".swp"), nil, 0o644), "what begins with a dot is not looked at")
	got, err := ReadFolder(folder)
	require.NoError(t, err)
	require.Equal(t, b, got)
}

// As the kubelet has a Secret: each name is a link into the folder that ..data leads to.
func TestAFolderMayBeAMountedSecret(t *testing.T) {
	b := made(t, draft())
	volume := t.TempDir()
	require.NoError(t, os.Chmod(volume, 0o777|fs.ModeSticky))
	at := filepath.Join(volume, "..2026_11_24_06_00_00.1")
	require.NoError(t, os.Mkdir(at, 0o755))
	for name, content := range b.Encode() {
		require.NoError(t, os.WriteFile(filepath.Join(at, name), content, 0o400))
		require.NoError(t, os.Symlink("..data/"+name, filepath.Join(volume, name)))
	}
	require.NoError(t, os.Symlink(filepath.Base(at), filepath.Join(volume, "..data")))
	got, err := ReadFolder(volume)
	require.NoError(t, err)
	require.Equal(t, b, got)
}

func TestAFolderThatSomebodyElseCouldHaveFilledIsRefused(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("sesame"), 0o600))
	for problem, spoil := range map[string]func(folder string) error{
		"may be read by others":                 func(folder string) error { return os.Chmod(filepath.Join(folder, "encryption-config"), 0o640) },
		"others than its owner may write to it": func(folder string) error { return os.Chmod(folder, 0o770) },
		"is no regular file": func(folder string) error {
			return os.Symlink(outside, filepath.Join(folder, "kms-plugin-config-9"))
		},
		`"link" is no regular file`:   func(folder string) error { return os.Symlink("encryption-config", filepath.Join(folder, "link")) },
		`"below" is no regular file`:  func(folder string) error { return os.Mkdir(filepath.Join(folder, "below"), 0o700) },
		`"pipe" is no regular file`:   func(folder string) error { return syscall.Mkfifo(filepath.Join(folder, "pipe"), 0o600) },
		"..data is no symbolic link":  func(folder string) error { return os.Mkdir(filepath.Join(folder, "..data"), 0o700) },
		"no folder of its own making": func(folder string) error { return os.Symlink("/etc", filepath.Join(folder, "..data")) },
		"is no folder of its own":     func(folder string) error { return os.Symlink("..", filepath.Join(folder, "..data")) },
		"no such file":                func(folder string) error { return os.Symlink("..gone", filepath.Join(folder, "..data")) },
		"which is no folder:": func(folder string) error {
			if err := os.Symlink("/etc", filepath.Join(folder, "..etc")); err != nil {
				return err
			}
			return os.Symlink("..etc", filepath.Join(folder, "..data"))
		},
		"is no part of a bundle": func(folder string) error { return os.WriteFile(filepath.Join(folder, "README"), nil, 0o600) },
		"more than 1048576 bytes together": func(folder string) error {
			return os.WriteFile(filepath.Join(folder, "zero"), make([]byte, MaxSize), 0o600)
		},
		"more than 1024 files": func(folder string) error {
			for i := range 1025 {
				if err := os.WriteFile(filepath.Join(folder, fmt.Sprint(i)), nil, 0o600); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(problem, func(t *testing.T) {
			folder := filled(t, made(t, draft()))
			require.NoError(t, spoil(folder))
			b, err := ReadFolder(folder)
			require.Nil(t, b)
			require.ErrorContains(t, err, problem)
			require.ErrorContains(t, err, folder)
			require.NotContains(t, err.Error(), "sesame")
		})
	}
	_, err := ReadFolder(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestAFileOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	folder := filled(t, made(t, draft()))
	require.NoError(t, os.Chown(filepath.Join(folder, "encryption-config"), 1001, 0))
	_, err := ReadFolder(folder)
	require.ErrorContains(t, err, `"encryption-config": it belongs to the user 1001`)
}

func TestAFolderWithAnythingElseIsNotWrittenTo(t *testing.T) {
	folder := t.TempDir()
	other := filepath.Join(folder, "passwd")
	require.NoError(t, os.WriteFile(other, []byte("root"), 0o600))
	require.ErrorContains(t, made(t, draft()).WriteFolder(folder), `it has "passwd" in it`)
	require.FileExists(t, other)
}

// What a killed process has left is erased by the next one, and never read.
func TestWhatAKilledProcessLeftIsGone(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "node")
	b := made(t, draft())
	require.NoError(t, b.WriteFolder(folder))
	half := filepath.Join(folder, written+"123")
	require.NoError(t, os.Mkdir(half, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(half, "encryption-config"), []byte("half"), 0o600))
	require.NoError(t, os.Symlink(filepath.Base(half), filepath.Join(folder, nextLink)))
	got, err := ReadFolder(folder)
	require.NoError(t, err)
	require.Equal(t, b, got)
	require.NoError(t, b.WriteFolder(folder))
	require.NoDirExists(t, half)
	got, err = ReadFolder(folder)
	require.NoError(t, err)
	require.Equal(t, b, got)
}

// A hard link shows what became of the file itself.
func TestTheFormerFilesAreOverwritten(t *testing.T) {
	folder, spy := filepath.Join(t.TempDir(), "node"), filepath.Join(t.TempDir(), "spy")
	require.NoError(t, made(t, draft()).WriteFolder(folder))
	require.NoError(t, os.Link(filepath.Join(folder, "..data", "kms-plugin-secret-vault-approle_secret-id-7"), spy))
	without := Draft{Revision: 4, EncryptionConfig: configFor(2), Plugins: draft().Plugins[1:]}
	require.NoError(t, made(t, without).WriteFolder(folder))
	content, err := os.ReadFile(spy)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("\x00", len(secretID)), string(content))
}

func TestAFailedWriteLeavesTheFormerBundle(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "node")
	b := made(t, draft())
	require.NoError(t, b.WriteFolder(folder))
	require.NoError(t, os.MkdirAll(filepath.Join(folder, nextLink, "in the way"), 0o700))
	other := draft()
	other.Revision = 4
	require.Error(t, made(t, other).WriteFolder(folder))
	got, err := ReadFolder(folder)
	require.NoError(t, err)
	require.Equal(t, b, got)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 3, "what was written in vain is gone")
}

// Whoever reads while another writes has one revision, whole.
func TestAReaderBesideAWriterHasOneRevision(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "node")
	const revisions = 40
	write := func(revision uint64) error {
		d := draft()
		d.Revision = revision
		d.Plugins[0].Parts[Part{Secret, "vault-approle", "secret-id"}] = fmt.Appendf(nil, "%d", revision)
		b, err := New(d)
		if err != nil {
			return err
		}
		return b.WriteFolder(folder)
	}
	require.NoError(t, write(1))
	done := make(chan error, 1)
	go func() {
		for revision := uint64(2); revision <= revisions; revision++ {
			if err := write(revision); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	last := uint64(0)
	for last < revisions {
		b, err := ReadFolder(folder)
		if err != nil {
			continue // replaced more often than it is read anew
		}
		require.GreaterOrEqual(t, b.Revision(), last)
		last = b.Revision()
		require.Equal(t, fmt.Sprint(last), string(b.Plugin(7).Content(Part{Secret, "vault-approle", "secret-id"})))
		select {
		case err := <-done:
			require.NoError(t, err)
			done <- nil
		default:
		}
	}
	require.NoError(t, <-done)
}

func FuzzFolder(f *testing.F) {
	b, err := New(draft())
	require.NoError(f, err)
	data := b.Encode()
	f.Add("kms-plugin-config-2", []byte(keyFileSettings("/other")))
	f.Add("bundle", data["bundle"])
	f.Add("encryption-config", []byte("{}"))
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		data := made(t, draft()).Encode()
		data[name] = content
		got, err := Decode(data)
		if err != nil {
			require.NotContains(t, err.Error(), "sesame")
			return
		}
		folder := filepath.Join(t.TempDir(), "node")
		require.NoError(t, got.WriteFolder(folder))
		read, err := ReadFolder(folder)
		require.NoError(t, err)
		require.Equal(t, got, read)
		text, err := got.MarshalSecret("a", "b")
		require.NoError(t, err)
		again, err := ParseSecret(text)
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}

func FuzzSecret(f *testing.F) {
	b, err := New(draft())
	require.NoError(f, err)
	text, err := b.MarshalSecret("kube-system", "encryption-config")
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{"apiVersion":"v1","kind":"Secret","data":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ParseSecret(text)
		if err != nil {
			return
		}
		again, err := Decode(got.Encode())
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}
