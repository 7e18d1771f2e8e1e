package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kernel is where the kernel tells of the processes: /proc.
type kernel string

// firstPIDs is the name of the first namespace of processes, in which all are seen: the kernel gives it this
// number (PROC_PID_INIT_INO in linux/proc_ns.h).
const firstPIDs = "pid:[4026531836]"

// inPod reports whether a process is in a container of the pod with a UID, as its cgroup tells, which
// no process in a container can change.
func (k kernel) inPod(pid int, uid string) (bool, error) {
	all, err := k.cgroups(pid)
	return isOfPod(all, uid), err
}

func (k kernel) cgroups(pid int) (string, error) {
	text, err := os.ReadFile(filepath.Join(string(k), strconv.Itoa(pid), "cgroup"))
	return string(text), err
}

// isOfPod reports whether the text of cgroups(7) for a process names the pod in a part of a path: as the
// kubelet does where it makes cgroups itself, podUID, or as systemd does for it,
// kubepods-burstable-podUID.slice.
func isOfPod(cgroups, uid string) bool {
	for line := range strings.SplitSeq(cgroups, "\n") {
		fields := strings.SplitN(line, ":", 3)
		if len(fields) != 3 {
			continue
		}
		for part := range strings.SplitSeq(fields[2], "/") {
			before, ok := strings.CutSuffix(strings.TrimSuffix(part, ".slice"), "pod"+uid)
			if ok && uid != "" && (before == "" || strings.HasSuffix(before, "-")) {
				return true
			}
		}
	}
	return false
}

// anyInPod reports whether any process is in a pod. That none is has to be proven: if not all
// processes of the machine are seen, it is not known.
func (k kernel) anyInPod(uid string) (bool, error) {
	entries, err := os.ReadDir(string(k))
	if err != nil {
		return false, fmt.Errorf("which processes there are: %w", err)
	}
	first := false
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		cgroups, err := k.cgroups(pid)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH): // it has ended
			continue
		case err != nil:
			return false, fmt.Errorf("which pod process %d is of: %w", pid, err)
		case isOfPod(cgroups, uid):
			return true, nil
		}
		first = first || pid == 1
	}
	if !first || !k.all() {
		return false, errors.New("whether a process of the pod is left is not known: not all processes of the machine are seen from here; run the node on the host, not in a container")
	}
	return false, nil
}

// all reports whether no process is in a namespace that cannot be seen from here.
func (k kernel) all() bool {
	target, err := os.Readlink(filepath.Join(string(k), "self", "ns", "pid"))
	return err == nil && target == firstPIDs
}
