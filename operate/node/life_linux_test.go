package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

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

// loseFirstThread ends the thread that has the number of the process, and has another go on.
func loseFirstThread() {
	go func() {
		for {
			if is, err := stat(os.Getpid()); err == nil && is.state == 'Z' {
				fmt.Println("headless")
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	go func() { time.Sleep(time.Minute); os.Exit(0) }() // nobody has to remember it
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

func init() {
	if len(os.Args) > 1 && (os.Args[1] == asHeadless || os.Args[1] == asAgain) {
		runtime.LockOSThread() // the main function stays on the first thread
	}
}

// A program is begun by whichever thread asks for it, and the first one is a zombie then, for a moment.
func TestAProcessWhoseFirstThreadEndedBeforeAnotherIsNotGone(t *testing.T) {
	headless := exec.Command(os.Args[0], asHeadless)
	out, err := headless.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, headless.Start())
	l, err := lifeOf(headless.Process.Pid)
	require.NoError(t, err)
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)
	there, err := l.lasts()
	require.NoError(t, err)
	require.True(t, there)
	require.NoError(t, headless.Process.Kill())
	require.Error(t, headless.Wait())
	there, err = l.lasts()
	require.NoError(t, err)
	require.False(t, there)
}

// beginAgain is the same program so many times more, and then ends with its input.
func beginAgain(more string) {
	left, _ := strconv.Atoi(more)
	if left == 0 {
		fmt.Println("done")
		_, _ = io.ReadAll(os.Stdin)
		os.Exit(0)
	}
	go func() {
		runtime.LockOSThread() // and so not on the first
		fmt.Println(syscall.Exec("/proc/self/exe", []string{os.Args[0], asAgain, strconv.Itoa(left - 1)}, os.Environ()))
		os.Exit(1)
	}()
	select {}
}

// What /proc has under the number is, for a moment, the first thread that has gone.
func TestAProcessThatBeginsAProgramIsNotGone(t *testing.T) {
	again := exec.Command(os.Args[0], asAgain, "60")
	in, err := again.StdinPipe()
	require.NoError(t, err)
	out, err := again.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, again.Start())
	defer func() { require.NoError(t, errors.Join(in.Close(), again.Wait())) }()
	l, err := lifeOf(again.Process.Pid)
	require.NoError(t, err)
	said := make(chan string, 1)
	go func() {
		text := make([]byte, 100)
		n, _ := out.Read(text)
		said <- string(text[:n])
	}()
	for looks := 1; ; looks++ {
		select {
		case text := <-said:
			require.Equal(t, "done\n", text)
			return
		default:
		}
		there, err := l.lasts()
		require.NoError(t, err)
		require.True(t, there, "after %d looks", looks)
	}
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

// hide is a plugin that keeps its memory private and listens nowhere, for a minute.
func hide() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	fmt.Println("hidden")
	time.Sleep(time.Minute)
	os.Exit(0)
}

// endHidden ends such a one as somebody who is told little of it.
func endHidden(folder string) int {
	if err := errors.Join(os.Chown(folder, 65534, 65534), syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
		fmt.Println(err)
		return 1
	}
	hidden := exec.Command("/proc/self/exe", asHidden)
	out, err := hidden.StdoutPipe()
	if err := errors.Join(err, hidden.Start()); err != nil {
		fmt.Println(err)
		return 1
	}
	_, _ = out.Read(make([]byte, 1))
	l, err := lifeOf(hidden.Process.Pid)
	text, _ := json.Marshal(started{Life: l})
	err = errors.Join(err, os.WriteFile(folder+"/"+startedName, text, 0o600))
	err = errors.Join(err, (&Processes{}).Stop(Spec{Folder: folder, Socket: folder + "/gone.sock"}, true))
	if err != nil {
		_ = hidden.Process.Kill()
	}
	fmt.Println(err, hidden.Wait())
	return 0
}

// Its socket may be gone, as when it hangs while it ends.
func TestAPluginThatIsHiddenAndListensNoMoreIsEnded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root becomes another")
	}
	folder, err := os.MkdirTemp("", "n") // that of a test leads through one that is root's alone
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	said, err := exec.Command(os.Args[0], asStranger, folder).CombinedOutput()
	require.NoError(t, err, string(said))
	require.Equal(t, "<nil> signal: killed\n", string(said))
}
