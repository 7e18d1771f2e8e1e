package main

import (
	"strings"

	"github.com/kube-atrest/atrest/operate/rollout"
)

// files are the configuration files as the flags say.
func (r *rotate) files() (rollout.Files, error) {
	switch {
	case r.hook != "":
		return rollout.HookedFiles{Program: r.hook, Err: r.err, Timeout: r.hookTimeout}, nil
	case strings.HasPrefix(r.config, rollout.SSHScheme):
		files, err := rollout.ParseSSH(r.config)
		if err != nil {
			return nil, usagef("flag --config: %w", err)
		}
		files.Timeout = r.hookTimeout
		return files, nil
	}
	return rollout.LocalFiles{Path: r.config}, nil
}
