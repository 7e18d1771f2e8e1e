//go:build !linux

package harness

import "os/exec"

// onHost does nothing: all programs are on the host of the test.
func onHost(*exec.Cmd, string) {}

func beHost() error { return nil }
