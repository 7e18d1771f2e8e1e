//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// inGroup has what a command starts end with it when its time is over, and keeps a key
// pressed at the terminal from it.
func inGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
}
