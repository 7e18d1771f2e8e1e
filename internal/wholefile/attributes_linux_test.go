package wholefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	accessList  = "system.posix_acl_access"
	inheritance = "system.posix_acl_default"
)

// list is the access control list in which the owner reads and writes, a user
// reads, the owning group may do nothing and nobody else may: stat(2) shows 0640.
func list(user uint32) []byte {
	const owner, named, group, mask, other, nobody = 1, 2, 4, 0x10, 0x20, 0xffffffff
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, uint32(2))
	for _, entry := range []struct {
		Tag, May uint16
		ID       uint32
	}{{owner, 6, nobody}, {named, 4, user}, {group, 0, nobody}, {mask, 4, nobody}, {other, 0, nobody}} {
		_ = binary.Write(&b, binary.LittleEndian, entry)
	}
	return b.Bytes()
}

// with gives a file an attribute, where the file system takes it.
func with(t *testing.T, path, name string, value []byte) {
	t.Helper()
	err := unix.Setxattr(path, name, value, 0)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) {
		t.Skipf("%s cannot be set here: %v", name, err)
	}
	require.NoError(t, err)
}

func exchanged(t *testing.T, path string) map[string][]byte {
	t.Helper()
	require.NoError(t, CanExchange(path, ""))
	was, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, Exchange(path, was, []byte("new"), ""))
	all, err := attributesOf(path)
	require.NoError(t, err)
	return all
}

// Without the list its mask would be the group's right to read the keys.
func TestAnExchangedFileKeepsItsAccessControlList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	with(t, path, accessList, list(1001))
	require.Equal(t, list(1001), exchanged(t, path)[accessList])
	requireFile(t, path, "new", 0o640)
}

func TestWhoMayReadAFileMayReadWhatItIsExchangedFor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root becomes others")
	}
	folder, err := os.MkdirTemp("", "") // that of a test leads through one that is root's alone
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	require.NoError(t, os.Chmod(folder, 0o755))
	path := filepath.Join(folder, "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	require.NoError(t, os.Chown(path, 0, 1002))
	with(t, path, accessList, list(1001))
	exchanged(t, path)
	readAs := func(user, group uint32) ([]byte, error) {
		read := exec.Command("cat", path)
		read.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: group}}
		return read.Output()
	}
	got, err := readAs(1001, 1001)
	require.NoError(t, err, "the apiserver's user, whom the list names")
	require.Equal(t, "new", string(got))
	_, err = readAs(5555, 1002)
	require.Error(t, err, "a member of the owning group")
}

func TestAnExchangedFileKeepsEveryOtherAttribute(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	large := bytes.Repeat([]byte("x"), 2000)
	with(t, path, "user.large", large)
	with(t, path, "user.empty", nil)
	with(t, path, "security.selinux", []byte("system_u:object_r:etc_t:s0\x00"))
	all := exchanged(t, path)
	require.Equal(t, large, all["user.large"])
	require.Empty(t, all["user.empty"])
	require.Contains(t, all, "user.empty")
	require.Equal(t, "system_u:object_r:etc_t:s0\x00", string(all["security.selinux"]))
}

func TestAnExchangedFileInheritsNothing(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o640))
	require.NoError(t, os.Chmod(path, 0o640))
	with(t, folder, inheritance, list(1001))
	require.NotContains(t, exchanged(t, path), accessList)
	requireFile(t, path, "new", 0o640)
}

func TestWhatVouchesForTheContentIsARefusal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	with(t, path, "security.ima", []byte("\x03\x02signature"))
	refused(t, path, `extended attribute "security.ima" cannot be kept: vouches for the content`)
}

func TestAnAttributeThatDiffersIsNoticed(t *testing.T) {
	folder := t.TempDir()
	old, next := filepath.Join(folder, "old"), filepath.Join(folder, "absent")
	require.NoError(t, os.WriteFile(old, nil, 0o600))
	require.ErrorIs(t, keepAttributes(next, old), os.ErrNotExist)
	require.ErrorIs(t, keepAttributes(old, next), os.ErrNotExist)
	require.ErrorIs(t, sameAttributes(next, old), os.ErrNotExist)
	require.ErrorIs(t, sameAttributes(old, next), os.ErrNotExist)
	require.NoError(t, os.WriteFile(next, nil, 0o600))
	with(t, old, "user.note", []byte("kept"))
	require.ErrorContains(t, sameAttributes(next, old), "is not kept")
	require.NoError(t, keepAttributes(next, old))
	require.NoError(t, sameAttributes(next, old))
	with(t, old, "user.note", []byte("else"))
	require.ErrorContains(t, sameAttributes(next, old), "is not kept")
}

func TestWhatIsTheSameAlreadyKeepsNothingElseBack(t *testing.T) {
	folder := t.TempDir()
	old, next := filepath.Join(folder, "old"), filepath.Join(folder, "next")
	for _, path := range []string{old, next} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		for i := range 20 {
			with(t, path, fmt.Sprintf("user.%d", i), []byte("same"))
		}
	}
	with(t, old, "user.note", []byte("kept"))
	require.NoError(t, keepAttributes(next, old))
	require.NoError(t, sameAttributes(next, old))
}

func TestAFrozenFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	for _, frozen := range []string{path, filepath.Dir(path)} {
		freeze(t, frozen, unix.STATX_ATTR_IMMUTABLE)
		refused(t, path, frozen+" cannot be replaced, as its attributes say")
		freeze(t, frozen, 0)
		freeze(t, frozen, unix.STATX_ATTR_APPEND)
		refused(t, path, frozen+" cannot be replaced, as its attributes say")
		freeze(t, frozen, 0)
	}
}

// freeze sets the flags of a file; those of statx(2) have the same values.
func freeze(t *testing.T, path string, flags int) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	if err := unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		t.Skipf("no file can be made immutable here: %v", err)
	}
	if flags != 0 {
		t.Cleanup(func() { freeze(t, path, 0) })
	}
}
