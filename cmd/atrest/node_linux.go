package main

import (
	"golang.org/x/sys/unix"

	"github.com/kube-atrest/atrest/operate/node"
)

func launch(args []string) error { return node.Launch(args) }

func runnerOf(c *nodeCommand) node.Runner {
	if c.manifests != "" {
		return &node.Pods{Manifests: c.manifests, Kubelet: c.kubelet, Proc: "/proc", Memory: c.memory, Patience: c.o.Patience}
	}
	return &node.Processes{
		Launcher: []string{"/proc/self/exe", "node", "launch"}, Program: c.program,
		Limits: node.Limits{Memory: c.memory, Files: c.files}, Env: c.environment(),
	}
}

// keepPrivate keeps credentials out of core dumps, and from other processes of this user.
func keepPrivate() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
