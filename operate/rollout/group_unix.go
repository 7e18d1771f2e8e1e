//go:build unix

package rollout

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// group has a program and what it starts be told together, when it is no longer wanted.
func group(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error {
		err := syscall.Kill(-command.Process.Pid, syscall.SIGINT)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
}

// end kills what a program left behind.
func end(command *exec.Cmd) {
	if command.Process != nil {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // there may be none
	}
}
