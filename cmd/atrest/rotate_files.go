package main

import (
	"strings"
	"time"

	"github.com/kube-atrest/atrest/operate/rollout"
)

// files are the configuration files as the flags say.
func (r *rotate) files() (rollout.Files, error) {
	switch {
	case r.hook != "":
		return rollout.HookedFiles{Program: r.hook, Err: r.err, Timeout: r.hookTimeout}, nil
	case strings.HasPrefix(r.config, rollout.SSHScheme):
		return sshFiles(r.config, r.hookTimeout)
	}
	return rollout.LocalFiles{Path: r.config}, nil
}

// sshFiles are those that --config names by its scheme.
func sshFiles(config string, timeout time.Duration) (rollout.SSHFiles, error) {
	files, err := rollout.ParseSSH(config)
	if err != nil {
		return files, usagef("flag --config: %w", err)
	}
	files.Timeout = timeout
	return files, nil
}
