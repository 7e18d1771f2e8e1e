package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/preflight"
)

// Try has the plugins of a bundle tried as a node with these options would before it takes it into
// effect: all at once, beside whatever runs, on sockets and with files of their own in a new folder
// below [Options.Run]. It ends them, overwrites the files, and gives what was found of each, the oldest
// keyID first. What was not decided when ctx ends is [preflight.NotYet], and so is one whose socket's name
// somebody has whom no node started. A bundle with a login that can be used once is an error. No other folder, file or apiserver that the options name is used.
func Try(ctx context.Context, b *bundle.Bundle, o Options) (found []TrialReport, err error) {
	for _, p := range b.Plugins() {
		if v := p.Settings().Vault; v != nil && v.Auth.AppRole != nil && v.Auth.AppRole.Wrapped {
			return nil, fmt.Errorf("the secret-id of keyID %s is wrapped, and can be had once: it would be used up", p.KeyID())
		}
	}
	folder, err := os.MkdirTemp(o.Run, "try-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, wipe(folder)) }()
	sockets := cmp.Or(o.Sockets, b.SocketFolder())
	o.Bundles, o.State, o.Run, o.Sockets, o.ConfigFile = folder+"/bundle", folder+"/state", folder+"/run", folder+"/s", folder+"/config.yaml"
	o.Expected, o.Apiservers, o.Drain = nil, nil, true
	if err := b.WriteFolder(o.Bundles); err != nil {
		return nil, err
	}
	n, err := New(o)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- n.Run(running) }()
	ticker := o.Clock.NewTicker(o.Every)
	defer ticker.Stop()
	for ctx.Err() == nil && !decided(b, n.Report()) {
		select {
		case <-ctx.Done():
		case <-ticker.C():
		}
	}
	stop()
	err = <-ended // and with it the last report
	for _, p := range b.Plugins() {
		is := foundOf(p.KeyID().String(), n.Report())
		if err := beside(filepath.Join(sockets, p.KeyID().Socket()), p.KeyID().String(), o.Timeout); is.Outcome == preflight.Passed && err != nil {
			is.Outcome, is.Failure = preflight.NotYet, &preflight.Failure{Step: "socket", Err: err, Text: err.Error()}
		}
		found = append(found, is)
	}
	return found, err
}

// beside is an error if the name that a plugin will have is that of somebody whom no node started, as far
// as that is seen from here: a node gives it to its own by a link.
func beside(name, keyID string, timeout time.Duration) error {
	if target, err := os.Readlink(name); err == nil && isInstanceOf(keyID, target) {
		return nil
	}
	return unoccupied(name, timeout)
}

// decided reports whether nothing more will be found out.
func decided(b *bundle.Bundle, r *Report) bool {
	for _, p := range b.Plugins() {
		if foundOf(p.KeyID().String(), r).Outcome == preflight.NotYet {
			return false
		}
	}
	return true
}

// foundOf is what was found of a keyID. Of a plugin that was never well no trial tells, but what it said.
func foundOf(keyID string, r *Report) TrialReport {
	for _, t := range r.Trials {
		if t.KeyID == keyID {
			return t
		}
	}
	var said []string
	for _, p := range r.Plugins {
		if p.KeyID == keyID && p.Message != "" {
			said = append(said, p.Message)
		}
	}
	for _, problem := range r.Problems {
		if strings.Contains(problem+" ", "keyID "+keyID+" ") || strings.HasPrefix(problem, string(StartPlugin)+" "+keyID+": ") {
			said = append(said, problem)
		}
	}
	text := "its plugin did not come"
	if len(said) > 0 {
		text = strings.Join(said, "; ")
	}
	return TrialReport{keyID, preflight.Verdict{Outcome: preflight.NotYet, Failure: &preflight.Failure{Step: "start", Text: text}}}
}
