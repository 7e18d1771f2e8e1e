package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// lookBlindly asks for the life of a process that /proc does not show: of another user, with hidepid.
func lookBlindly(pid string) int {
	number, _ := strconv.Atoi(pid)
	l, err := lifeOf(number)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, "hidepid=2"); err != nil {
		fmt.Println("cannot be tried:", err)
		return 0
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
		fmt.Println(err)
		return 1
	}
	there, err := l.lasts()
	fmt.Println(there, err)
	return 0
}

// One that keeps its memory private is another's to all but root.
func TestAProcessThatIsHiddenIsNotTakenForGone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	look := exec.Command(os.Args[0], asBlind, strconv.Itoa(os.Getpid()))
	look.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	said, err := look.CombinedOutput()
	if err != nil && len(said) == 0 {
		t.Skip("no mounts of its own: ", err)
	}
	require.NoError(t, err, string(said))
	if string(said[:6]) == "cannot" {
		t.Skip(string(said))
	}
	require.Contains(t, string(said), "there is a process")
}

func TestAProcessThatEndedIsGone(t *testing.T) {
	ended := exec.Command(os.Args[0], "-test.run", "^$")
	require.NoError(t, ended.Start())
	l, err := lifeOf(ended.Process.Pid)
	require.NoError(t, err)
	require.NoError(t, ended.Wait())
	there, err := l.lasts()
	require.NoError(t, err)
	require.False(t, there)
}
