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

	"github.com/kube-atrest/atrest/internal/filelock"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/preflight"
)

// Try has the plugins of a bundle tried as a node with these options would before it takes it into
// effect: all at once, beside whatever runs, on sockets and with files of their own in a new folder
// below [Options.Run]. It ends them, overwrites the files, and gives what was found of each, the oldest
// keyID first. What was not decided when ctx ends is [preflight.NotYet], and so is one whose socket's name
// somebody has whom no node started. A bundle with a login that can be used once is an error. No other
// folder, file or apiserver that the options name is used. What another one left below [Options.Run] that
// was killed is ended and overwritten first.
func Try(ctx context.Context, b *bundle.Bundle, o Options) (found []TrialReport, err error) {
	for _, p := range b.Plugins() {
		if v := p.Settings().Vault; v != nil && v.Auth.AppRole != nil && v.Auth.AppRole.Wrapped {
			return nil, fmt.Errorf("the secret-id of keyID %s is wrapped, and can be had once: it would be used up", p.KeyID())
		}
	}
	endKilled(o)
	folder, err := os.MkdirTemp(o.Run, tries)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, wipe(folder)) }()
	sockets := cmp.Or(o.Sockets, b.SocketFolder())
	o = o.within(folder)
	n, err := New(o) // before there is anything of which nobody else would know whose it is
	if err != nil {
		return nil, err
	}
	if err := b.WriteFolder(o.Bundles); err != nil {
		return nil, errors.Join(err, n.lock.Release())
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

// tries begins the names of the folders of trials.
const tries = "atrest-try-"

// within are the options of a node that has all that it needs in one folder.
func (o Options) within(folder string) Options {
	o.Bundles, o.State, o.Run, o.Sockets, o.ConfigFile = folder+"/bundle", folder+"/state", folder+"/run", folder+"/s", folder+"/config.yaml"
	o.Expected, o.Apiservers, o.Drain = nil, nil, true
	return o
}

// endKilled ends the plugins of trials that were killed, and overwrites what those left. It is known by
// the lock, which a trial holds while it lasts and has no file afterwards.
func endKilled(o Options) {
	locks, _ := filepath.Glob(filepath.Join(o.Run, tries+"[0-9]*", "run", lockName)) // no pattern, none found
	for _, lock := range locks {
		folder := filepath.Dir(filepath.Dir(lock))
		n, err := New(o.within(folder))
		if errors.Is(err, filelock.ErrHeld) {
			continue
		}
		if err == nil {
			err = n.endAll(folder)
		}
		if err != nil {
			o.Log("problem: what a trial that was killed left in " + folder + ": " + err.Error())
		}
	}
}

// endAll has all plugins end that are on record, and removes the folder of everything.
func (n *Node) endAll(folder string) error {
	over, end := context.WithCancel(context.Background())
	end()
	n.readInstances(over)
	blind := n.known.blind
	err := n.Run(over)
	if blind {
		err = errors.Join(errors.New("which plugins run is not known"), err)
	}
	if err != nil {
		return err
	}
	return wipe(folder)
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
