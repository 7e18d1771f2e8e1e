//go:build !unix

package rollout

import (
	"os"
	"os/exec"
)

func group(command *exec.Cmd) {
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
}

func end(*exec.Cmd) {}
