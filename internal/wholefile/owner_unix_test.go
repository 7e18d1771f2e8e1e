//go:build unix

package wholefile

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnExchangedFileKeepsItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to others")
	}
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chown(path, 4711, 4712))
	require.NoError(t, Exchange(path, nil, []byte("new"), "do otherwise"))
	info, err := os.Stat(path)
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	require.Equal(t, [2]uint32{4711, 4712}, [2]uint32{owner.Uid, owner.Gid})

	require.NoError(t, os.Chown(path, os.Geteuid(), 4712))
	require.NoError(t, Exchange(path, []byte("new"), []byte("new"), "do otherwise"))
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, uint32(4712), info.Sys().(*syscall.Stat_t).Gid, "the group alone is another's")
}

func TestAFileWithAnotherNameIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	require.NoError(t, os.Link(path, filepath.Join(t.TempDir(), "other.yaml")))
	refused(t, path, "has another name (a hard link), which would keep the old content")
}

// ordinary is what a process that is not root's is told, in the folder of a file
// and with what it may do there.
func ordinary(t *testing.T, path string, may os.FileMode) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root becomes others")
	}
	require.NoError(t, os.Chmod(filepath.Dir(path), may))
	// That of the tests is where root alone comes.
	program := filepath.Join(open(t), "program")
	code, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, code, 0o755))
	asked := exec.Command(program)
	asked.Env = append(os.Environ(), "EXCHANGED="+path)
	asked.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}
	said, err := asked.CombinedOutput()
	require.NoError(t, err, string(said))
	requireFile(t, path, "old", 0o666)
	lines := strings.Split(string(said), "\n")
	require.Len(t, lines, 2)
	mask := func(line string) string { return regexp.MustCompile(`atrest-\d+`).ReplaceAllString(line, "") }
	require.Equal(t, mask(lines[0]), mask(lines[1]), "the question and the exchange")
	return lines[0]
}

// open is a folder that all may come to.
func open(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	require.NoError(t, os.Chmod(folder, 0o755))
	return folder
}

func TestWhoMayNotExchangeAFileIsToldSo(t *testing.T) {
	path := filepath.Join(open(t), "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	require.NoError(t, os.Chmod(path, 0o666))
	require.Contains(t, ordinary(t, path, 0o755), "permission denied: a new file has to be made beside the old one: allow it, or do otherwise")
	require.Contains(t, ordinary(t, path, 0o777), "the new file would not be like "+path+": ")
	require.Contains(t, ordinary(t, path, 0o777), "operation not permitted: run as root, or do otherwise")
	requireAlone(t, filepath.Dir(path))
	require.Contains(t, ordinary(t, path, 0o733), "permission denied: a new file has to be made beside", "it cannot be seen what others left")

	left := filepath.Join(filepath.Dir(path), prefix+"1")
	require.NoError(t, os.WriteFile(left, nil, 0o600))
	require.Contains(t, ordinary(t, path, 0o777), left+" was left by a process that was killed, and may hold keys: remove it")
}
