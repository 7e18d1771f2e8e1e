package node

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listens is the state of a socket that listens, in /proc/net/tcp.
const listens = "0A"

// Ports are the TCP ports that the process of an instance listens on.
func (r *Processes) Ports(s Spec) ([]int, error) {
	p, err := recordOf(s)
	if err != nil {
		return nil, err
	}
	if there, err := p.Life.lasts(); err != nil || !there {
		return nil, err
	}
	folder := fmt.Sprintf("/proc/%d/fd", p.Life.PID)
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, file := range files {
		target, _ := os.Readlink(filepath.Join(folder, file.Name())) // which may just have been closed
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			has[strings.TrimSuffix(inode, "]")] = true
		}
	}
	var ports []int
	for _, table := range []string{"tcp", "tcp6"} {
		file, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", p.Life.PID, table))
		if errors.Is(err, fs.ErrNotExist) { // without IPv6
			continue
		}
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			if port, inode, ok := listening(lines.Text()); ok && has[inode] {
				ports = append(ports, port)
			}
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

// listening reads a line of /proc/net/tcp or tcp6 of a socket that listens: its second field is
// the address, the fourth the state, the tenth the inode.
func listening(line string) (port int, inode string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != listens {
		return 0, "", false
	}
	_, hex, _ := strings.Cut(fields[1], ":")
	n, err := strconv.ParseUint(hex, 16, 16)
	return int(n), fields[9], err == nil
}
