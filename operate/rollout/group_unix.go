//go:build unix

package rollout

import (
	"os/exec"
	"syscall"
)

// group has a program and what it starts be told together, when it is no longer wanted.
func group(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
}

// end kills what a program left behind.
func end(command *exec.Cmd) {
	if command.Process != nil {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // there may be none
	}
}
