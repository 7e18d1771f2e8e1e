package node

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// ownMounts in the environment tells a test that it may mount: others do not see it.
const ownMounts = "ATREST_NODE_OWN_MOUNTS"

// mayMount runs a test once more, in a process that has mounts of its own, and reports whether this is that one.
func mayMount(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownMounts) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	again.Env = append(os.Environ(), ownMounts+"=1", builtPlugin+"="+realPlugin(t))
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	said, err := again.CombinedOutput()
	if err != nil && len(said) == 0 {
		t.Skip("no mounts of its own: ", err)
	}
	require.NoError(t, err, string(said))
	require.NotContains(t, string(said), "no tests to run")
	return false
}

// smallDisk makes a folder that has room for little.
func (r *rig) smallDisk(folder string) {
	r.t.Helper()
	require.NoError(r.t, os.MkdirAll(folder, 0o700))
	require.NoError(r.t, unix.Mount("tmpfs", folder, "tmpfs", 0, "size=512k,mode=0700"))
	r.mounted = append(r.mounted, folder)
}

// fill leaves no room in a folder, until the file that it names is removed.
func fill(t *testing.T, folder string) (filler string) {
	t.Helper()
	filler = folder + "/filler"
	file, err := os.Create(filler)
	require.NoError(t, err)
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4<<10))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	return filler
}

// onSmallDisk has what a node keeps, and the configuration file, on one.
func onSmallDisk(t *testing.T) (r *rig, disk string) {
	t.Helper()
	r = newRig(t)
	disk = r.folder + "/disk"
	r.smallDisk(disk)
	r.o.State, r.o.ConfigFile = disk+"/state", disk+"/config.yaml"
	r.runs()
	return r, disk
}

// goesOff is a power cut: what was in memory is lost, and so is whoever brought the bundle.
func (r *rig) goesOff() {
	r.t.Helper()
	r.end()
	r.killAll()
	for _, lost := range []string{r.o.Run, r.o.Bundles, r.folder + "/kms"} {
		require.NoError(r.t, os.RemoveAll(lost))
	}
}

func tells(text ...string) func(*Report) bool {
	return func(r *Report) bool {
		for _, part := range text {
			if !strings.Contains(strings.Join(append(r.Problems, r.Waits...), "\n"), part) {
				return false
			}
		}
		return true
	}
}

func TestOnAFullDiskAMachineComesUpAndNothingNewIsTaken(t *testing.T) {
	if !mayMount(t) {
		return
	}
	r, disk := onSmallDisk(t)
	filler := fill(t, disk)
	r.goesOff()
	r.start()
	r.until("it is in effect again", settled(1, 1))
	pid := r.pid("1")
	r.give(r.draft(2, 2, 1))
	report := r.until("it is told", tells("keep the bundle in "+r.o.State, "no space left on device"))
	require.Equal(t, uint64(1), report.InEffect.Revision)
	require.True(t, lives(pid))

	r.end()
	require.NoError(t, os.Remove(r.o.ConfigFile))
	fill(t, disk)
	r.start()
	r.until("it is told", tells("put the configuration file in place", "no space left on device"))
	require.True(t, lives(pid))

	require.NoError(t, os.Remove(filler))
	r.until("it goes on", settled(2, 2))
	require.Equal(t, pid, r.pid("1"))
}

func TestOnADiskThatIsReadOnlyAMachineComesUpAndNothingNewIsTaken(t *testing.T) {
	if !mayMount(t) {
		return
	}
	r, disk := onSmallDisk(t)
	r.goesOff()
	require.NoError(t, unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	r.start()
	r.until("it is in effect again", settled(1, 1))
	pid := r.pid("1")
	r.give(r.draft(2, 2, 1))
	report := r.until("it is told", tells("keep the bundle in "+r.o.State, "read-only file system"))
	require.Equal(t, uint64(1), report.InEffect.Revision)
	require.NoError(t, unix.Mount("", disk, "", unix.MS_REMOUNT, ""))
	r.until("it goes on", settled(2, 2))
	require.Equal(t, pid, r.pid("1"))
}

func TestWithMemoryThatIsFullWhatRunsStays(t *testing.T) {
	if !mayMount(t) {
		return
	}
	r := newRig(t)
	r.smallDisk(r.o.Run)
	r.runs()
	pid := r.pid("1")
	filler := fill(t, r.o.Run)
	r.give(r.draft(2, 2, 1))
	report := r.until("it is told", tells("start 2", "no space left on device"))
	require.Equal(t, uint64(1), report.InEffect.Revision)
	require.True(t, lives(pid))
	require.NoError(t, os.Remove(filler))
	r.until("it goes on", settled(2, 2))
	require.Equal(t, pid, r.pid("1"))
}

// wrongClock is one that is off by some time. Its times tell nothing but what a wall clock shows.
type wrongClock struct {
	clock.RealClock
	by time.Duration
}

func (w wrongClock) Now() time.Time                  { return w.RealClock.Now().Add(w.by).Round(0) }
func (w wrongClock) Since(t time.Time) time.Duration { return w.Now().Sub(t) }

func TestWithAClockThatIsWrongAMachineComesUp(t *testing.T) {
	t.Parallel()
	for _, years := range []int{-56, 100} {
		t.Run(fmt.Sprint(years, " years"), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.give(r.draft(1, 1))
			r.follows()
			r.start()
			r.until("it is in effect", settled(1, 1))
			r.goesOff()
			r.o.Clock = wrongClock{by: time.Duration(years) * 365 * 24 * time.Hour}
			r.start()
			r.until("it is in effect again", settled(1, 1))
			r.give(r.draft(2, 2))
			r.until("the next one is in effect, and the former plugin gone", settled(2, 1))
		})
	}
}
