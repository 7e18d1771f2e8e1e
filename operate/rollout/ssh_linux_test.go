package rollout

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/wholefile"
)

// node is this machine, as one that an sshd leads to which is real, on loopback, with keys
// of its own. ssh is that of the system, and its arguments are kept.
type node struct {
	dir, port string
}

func newNode(t *testing.T) node {
	t.Helper()
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		t.Skip("no sshd: apt-get install openssh-server")
	}
	ssh, err := exec.LookPath("ssh")
	require.NoError(t, err)
	if os.Geteuid() == 0 { // it leaves root's rights there, on Debian
		require.NoError(t, os.MkdirAll("/run/sshd", 0o755))
	}
	n := node{dir: t.TempDir()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, n.port, _ = net.SplitHostPort(l.Addr().String())
	require.NoError(t, l.Close())
	for _, key := range []string{"host", "mine"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", n.in(key)).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	public, err := os.ReadFile(n.in("host.pub"))
	require.NoError(t, err)
	n.write(t, "known", fmt.Sprintf("[127.0.0.1]:%s %s", n.port, public))
	n.write(t, "sshd_config", fmt.Sprintf("Port %s\nListenAddress 127.0.0.1\nHostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n",
		n.port, n.in("host"), n.in("mine.pub")))
	n.write(t, "ssh_config", fmt.Sprintf("Host *\nIdentityFile %s\nIdentitiesOnly yes\nUserKnownHostsFile %s\nGlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\n", n.in("mine"), n.in("known")))
	require.NoError(t, os.Mkdir(n.in("bin"), 0o755))
	n.write(t, "bin/ssh", fmt.Sprintf("#!/bin/sh\nprintf '%%s\\n' \"$@\" >> %s\nexec %s -F %s \"$@\"\n", n.in("arguments"), ssh, n.in("ssh_config")))
	t.Setenv("PATH", n.in("bin")+":"+os.Getenv("PATH"))

	log, err := os.Create(n.in("log"))
	require.NoError(t, err)
	server := exec.Command(sshd, "-D", "-e", "-f", n.in("sshd_config"))
	server.Stdout, server.Stderr = log, log
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	require.Eventually(t, func() bool {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+n.port, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 20*time.Second, 20*time.Millisecond, "sshd: %s", n.in("log"))
	return n
}

func (n node) in(name string) string { return filepath.Join(n.dir, name) }

func (n node) write(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(n.in(name), []byte(content), 0o700))
}

func (n node) files(t *testing.T, path string) SSHFiles {
	t.Helper()
	me, err := user.Current()
	require.NoError(t, err)
	f, err := ParseSSH(fmt.Sprintf("ssh://%s@{apiserver}:%s%s", me.Username, n.port, path))
	require.NoError(t, err)
	return f
}

const aServer = "127.0.0.1:6443"

func TestFilesOfAMachineAreReadAndExchangedBySSH(t *testing.T) {
	n := newNode(t)
	folder := n.in("it's $(touch gone) here")
	require.NoError(t, os.Mkdir(folder, 0o755))
	path := filepath.Join(folder, "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old\n"), 0o600))
	require.NoError(t, os.Chmod(path, 0o640))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(path, 1234, 4321))
	}
	was := statOf(t, path)
	files := n.files(t, path)
	require.NoError(t, files.Check(t.Context(), aServer))
	require.Equal(t, was.Ino, statOf(t, path).Ino, "nothing is changed by a check")
	content, err := files.Read(t.Context(), aServer)
	require.NoError(t, err)
	require.Equal(t, "old\n", string(content))

	const secret = "a new key, 'quoted' \x00 and not of text\n\n"
	require.NoError(t, files.Write(t.Context(), aServer, []byte("old\n"), []byte(secret)))
	content, err = files.Read(t.Context(), aServer)
	require.NoError(t, err)
	require.Equal(t, secret, string(content))
	require.ErrorIs(t, files.Write(t.Context(), aServer, []byte("old\n"), []byte("new")), wholefile.ErrChanged, "somebody edited it")
	content, err = files.Read(t.Context(), aServer)
	require.NoError(t, err)
	require.Equal(t, secret, string(content))
	is := statOf(t, path)
	require.Equal(t, []uint32{was.Uid, was.Gid, was.Mode}, []uint32{is.Uid, is.Gid, is.Mode})
	require.NotEqual(t, was.Ino, is.Ino, "another file in its place")
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, left, 1)
	arguments, err := os.ReadFile(n.in("arguments"))
	require.NoError(t, err)
	require.Contains(t, string(arguments), "BatchMode=yes")
	require.NotContains(t, string(arguments), "a new key")
}

func TestAFirstFileIsMadeBySSH(t *testing.T) {
	n := newNode(t)
	folder := n.in("it's here")
	files := n.files(t, filepath.Join(folder, "config.yaml"))
	require.ErrorContains(t, files.Create(t.Context(), aServer, []byte("first")), "there is no folder "+folder+": make it first")
	require.NoError(t, os.Mkdir(folder, 0o755))
	require.NoError(t, files.Create(t.Context(), aServer, []byte("first\n\n")))
	content, err := files.Read(t.Context(), aServer)
	require.NoError(t, err)
	require.Equal(t, "first\n\n", string(content))
	require.EqualValues(t, 0o600, statOf(t, filepath.Join(folder, "config.yaml")).Mode&0o777)

	err = files.Create(t.Context(), aServer, []byte("other"))
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, "127.0.0.1:"+filepath.Join(folder, "config.yaml")+" is there already: atrest rotate --to goes on from it")
	require.NoError(t, os.Symlink("nowhere", filepath.Join(folder, "link")))
	require.ErrorIs(t, n.files(t, filepath.Join(folder, "link")).Create(t.Context(), aServer, []byte("other")), fs.ErrExist)
	require.NoError(t, os.Mkdir(filepath.Join(folder, "folder"), 0o755))
	require.ErrorIs(t, n.files(t, filepath.Join(folder, "folder")).Create(t.Context(), aServer, []byte("other")), fs.ErrExist)
	content, err = files.Read(t.Context(), aServer)
	require.NoError(t, err)
	require.Equal(t, "first\n\n", string(content))
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, left, 3)
	inside, err := os.ReadDir(filepath.Join(folder, "folder"))
	require.NoError(t, err)
	require.Empty(t, inside)

	shell := exec.Command("sh", "-c", create, "sh", filepath.Join(folder, "half"))
	shell.Stdin = strings.NewReader(strings.Repeat("0", 64) + "\nhalf of i")
	require.Error(t, shell.Run(), "the connection was cut off")
	require.NoFileExists(t, filepath.Join(folder, "half"))
}

// A file that a link leads to is exchanged, and the link stays.
func TestALinkStaysWhatItIs(t *testing.T) {
	n := newNode(t)
	n.write(t, "encryption.yaml", "old")
	require.NoError(t, os.Symlink("encryption.yaml", n.in("link")))
	require.NoError(t, n.files(t, n.in("link")).Write(t.Context(), aServer, []byte("old"), []byte("new")))
	to, err := os.Readlink(n.in("link"))
	require.NoError(t, err)
	require.Equal(t, "encryption.yaml", to)
	content, err := os.ReadFile(n.in("encryption.yaml"))
	require.NoError(t, err)
	require.Equal(t, "new", string(content))
}

func TestWhatSSHSaysIsTold(t *testing.T) {
	n := newNode(t)
	absent := n.files(t, n.in("absent"))
	_, err := absent.Read(t.Context(), aServer)
	require.ErrorContains(t, err, "ssh to 127.0.0.1 for "+n.in("absent")+": exit status 1: cat: ")
	require.NotContains(t, err.Error(), "BatchMode", "ssh itself is well")
	require.ErrorContains(t, absent.Check(t.Context(), aServer), n.in("absent")+" is no file that can be read")
	require.ErrorContains(t, absent.Write(t.Context(), aServer, []byte("old"), []byte("new")), "is no file that can be read")

	n.write(t, "encryption.yaml", "old")
	require.NoError(t, os.Link(n.in("encryption.yaml"), n.in("other")))
	require.ErrorContains(t, n.files(t, n.in("other")).Check(t.Context(), aServer), n.in("other")+" has another name (a hard link)")

	n.write(t, "known", "")
	_, err = absent.Read(t.Context(), aServer)
	require.ErrorContains(t, err, "Host key verification failed")
	require.ErrorContains(t, err, "see that ssh -o BatchMode=yes 127.0.0.1 true works")
}

func TestSSHThatTakesTooLongIsEnded(t *testing.T) {
	n := newNode(t)
	n.write(t, "bin/ssh", "#!/bin/sh\nexec sleep 60\n")
	files := n.files(t, n.in("encryption.yaml"))
	files.Timeout = 50 * time.Millisecond
	_, err := files.Read(t.Context(), aServer)
	require.ErrorContains(t, err, "it took longer than 50ms: give it more by --hook-timeout")
}

// What comes over a connection that is cut off is not all of it.
func TestHalfAFileIsNotTakenForOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	for _, sent := range []string{"", strings.Repeat("0", 64), strings.Repeat("0", 64) + "\nhalf of i"} {
		shell := exec.Command("sh", "-c", writeBeside, "sh", path)
		shell.Stdin = strings.NewReader(sent)
		require.Error(t, shell.Run())
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "old", string(content))
		left, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Len(t, left, 1)
	}
}

func TestAFileThatCannotKeepItsOwnerStays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root becomes others")
	}
	folder, err := os.MkdirTemp("", "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	require.NoError(t, os.Chmod(folder, 0o777))
	path := filepath.Join(folder, "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	require.NoError(t, os.Chmod(path, 0o644))
	shell := exec.Command("sh", "-c", beside, "sh", path)
	shell.Dir = folder
	shell.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1001, Gid: 1001}}
	out, err := shell.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "cannot be kept: let ssh be the owner or root")
}

func TestAddressesOfFilesBySSH(t *testing.T) {
	for address, want := range map[string]SSHFiles{
		"ssh://{apiserver}/etc/e.yaml":           {host: "{apiserver}", path: "/etc/e.yaml"},
		"ssh://root@{apiserver}:2222/a b.yaml":   {user: "root", host: "{apiserver}", port: "2222", path: "/a b.yaml"},
		"ssh://root@[::1]:22/etc/{apiserver}":    {user: "root", host: "::1", port: "22", path: "/etc/{apiserver}"},
		"ssh://me@corp@node.example.com/e.yaml":  {user: "me@corp", host: "node.example.com", path: "/e.yaml"},
		"ssh://[{apiserver}]/etc/encrypted.yaml": {host: "{apiserver}", path: "/etc/encrypted.yaml"},
	} {
		got, err := ParseSSH(address)
		require.NoError(t, err, address)
		require.Equal(t, want, got, address)
	}
	for _, address := range []string{"", "ssh://", "ssh://host", "ssh://host/", "ssh:///e.yaml", "ssh://root@/e.yaml", "ssh://@host/e.yaml",
		"ssh://host:port/e.yaml", "ssh://host:/e.yaml", "ssh://root:password@host/e.yaml", "ssh://host/folder/", "/etc/e.yaml", "ssh://host:99999/e.yaml"} {
		_, err := ParseSSH(address)
		require.ErrorContains(t, err, "write ssh://[USER@]{apiserver}[:PORT]/PATH", address)
	}
}

func TestThePlaceholderIsAHost(t *testing.T) {
	for apiserver, want := range map[string]string{"cp-1": "cp-1", "10.0.0.1:6443": "10.0.0.1", "[fd00::1]:6443": "fd00::1", "https://x": "https://x",
		"arn:aws:eks:eu-west-1:1:cluster/a": "arn:aws:eks:eu-west-1:1:cluster/a", "cp-1:blue": "cp-1:blue", ":6443": ":6443"} {
		require.Equal(t, "/mnt/"+want+"/e", Fill("/mnt/{apiserver}/e", apiserver))
	}
}

func statOf(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Sys().(*syscall.Stat_t)
}
