package wholefile

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// process makes one with these mounts, below a folder that is like /proc.
func process(t *testing.T, proc, id, mounts string, lines ...string) {
	t.Helper()
	folder := filepath.Join(proc, id)
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "ns"), 0o700))
	require.NoError(t, os.Symlink(mounts, filepath.Join(folder, "ns", "mnt")))
	require.NoError(t, os.Symlink("/", filepath.Join(folder, "root")))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "mountinfo"), []byte(strings.Join(lines, "\n")), 0o600))
}

func mountLine(root, at string) string {
	escape := strings.NewReplacer(" ", `\040`, `\`, `\134`)
	return fmt.Sprintf("36 35 98:0 %s %s rw,noatime master:1 - ext4 /dev/vda rw", escape.Replace(root), escape.Replace(at))
}

func TestAMountOfTheFileAloneIsFound(t *testing.T) {
	folder := t.TempDir()
	path, other := filepath.Join(folder, "an encryption.yaml"), filepath.Join(folder, `a \pod`)
	for _, name := range []string{path, other} {
		require.NoError(t, os.WriteFile(name, nil, 0o600))
	}
	whole := mountLine("/", "/")
	for name, c := range map[string]struct {
		root, at string
		found    bool
	}{
		"elsewhere":                    {"/etc/an encryption.yaml", path, true},
		"under another name":           {"/etc/kubernetes.yaml", path, true},
		"a namesake":                   {"/etc/an encryption.yaml", other, false},
		"another file":                 {"/etc/hosts", other, false},
		"the folder":                   {"/etc", folder, false},
		"a namesake that is not there": {"/etc/an encryption.yaml", folder + "/absent", false},
	} {
		proc := t.TempDir()
		process(t, proc, "self", "mnt:[1]", whole)
		process(t, proc, "17", "mnt:[1]", whole)
		process(t, proc, "18", "mnt:[2]", "", "short", whole, mountLine(c.root, c.at))
		want := ""
		if c.found {
			want = c.at + " by process 18"
		}
		require.Equal(t, want, mountedAlone(proc, path), name)
	}
}

func TestEachSetOfMountsIsAskedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	proc := t.TempDir()
	process(t, proc, "self", "mnt:[1]")
	process(t, proc, "17", "mnt:[1]", mountLine("/encryption.yaml", path)) // which the kernel would never say
	require.Empty(t, mountedAlone(proc, path))
	require.Empty(t, mountedAlone(proc, path+".absent"))
	require.Empty(t, mountedAlone(filepath.Join(proc, "absent"), path))
}

// A pod with the file as a volume of its own (hostPath of type File) would go on
// with the old one.
func TestAFileThatIsMountedIntoAContainerIsRefused(t *testing.T) {
	folder := t.TempDir()
	path, pod := filepath.Join(folder, "encryption.yaml"), filepath.Join(t.TempDir(), "in-the-pod.yaml")
	for _, name := range []string{path, pod} {
		require.NoError(t, os.WriteFile(name, []byte("old"), 0o600))
	}
	container := exec.Command("unshare", "-m", "sh", "-c", `mount --bind "$1" "$2" && echo mounted && cat`, "sh", path, pod)
	in, err := container.StdinPipe()
	require.NoError(t, err)
	out, err := container.StdoutPipe()
	require.NoError(t, err)
	if err := container.Start(); err != nil {
		t.Skipf("no container: %v", err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "mounted\n" {
		_ = container.Wait()
		t.Skip("nothing may be mounted here")
	}
	refused(t, path, "is mounted by itself at "+pod)
	require.NoError(t, in.Close())
	require.NoError(t, container.Wait())
	require.NoError(t, CanExchange(path, ""), "the container is gone")
}
