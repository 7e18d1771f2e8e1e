package harness

import (
	"os"
	"os/exec"
	"syscall"
)

// hostVariable tells a program what its host is called.
const hostVariable = "ATREST_TEST_HOST"

// onHost has a program be on a host of this name, as far as it can see. Who is not root
// needs a user namespace for that.
func onHost(command *exec.Cmd, host string) {
	command.Env = append(command.Env, hostVariable+"="+host)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS}
	if os.Geteuid() != 0 {
		command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	}
}

// beHost is the part of the program that was started so.
func beHost() error {
	host, of := os.LookupEnv(hostVariable)
	if !of {
		return nil
	}
	return syscall.Sethostname([]byte(host))
}
