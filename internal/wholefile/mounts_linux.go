package wholefile

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxMounts bounds what is read of the mounts of a process, in bytes.
const maxMounts = 16 << 20

// mountedAlone is where a process has a file mounted by itself, or empty. All
// processes that this one may look at are asked, as a container has mounts of its
// own: once for each set of mounts.
func mountedAlone(proc, path string) string {
	file, err := os.Stat(path)
	if err != nil {
		return ""
	}
	asked := map[string]bool{}
	all, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	for _, process := range append([]string{filepath.Join(proc, "self")}, all...) {
		mounts, err := os.Readlink(filepath.Join(process, "ns", "mnt"))
		if err != nil || asked[mounts] {
			continue
		}
		asked[mounts] = true
		for _, m := range mountsOf(process) {
			if filepath.Base(m.root) != filepath.Base(path) && m.at != path {
				continue
			}
			if is, err := os.Stat(filepath.Join(process, "root", m.at)); err == nil && os.SameFile(is, file) {
				return m.at + " by process " + filepath.Base(process)
			}
		}
	}
	return ""
}

// mount is a line of mountinfo: what of a file system is mounted, and where.
type mount struct{ root, at string }

func mountsOf(process string) (all []mount) {
	file, err := os.Open(filepath.Join(process, "mountinfo"))
	if err != nil {
		return nil // it has ended
	}
	defer file.Close()
	for lines := bufio.NewScanner(io.LimitReader(file, maxMounts)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 {
			all = append(all, mount{unescaped.Replace(fields[3]), unescaped.Replace(fields[4])})
		}
	}
	return all
}

// unescaped undoes what mountinfo does to characters that would part its fields.
var unescaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
