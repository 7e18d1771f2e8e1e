package node

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"
)

// listen passes on what the plugins logged, and has former files go.
func (n *Node) listen() {
	now := n.o.Clock.Now()
	for _, one := range n.own {
		err := one.lines.passOn(one.secrets, n.o.Log)
		for _, folder := range former(one.Spec) {
			since, seen := one.changed[folder]
			switch {
			case !seen:
				one.changed[folder] = now
			case now.Sub(since) >= stillRead:
				err = errors.Join(err, wipe(folder))
				delete(one.changed, folder)
			}
		}
		n.trouble(logOf+one.Spec.Instance, err)
	}
}

// stillRead is for how long a plugin may read a file of which it has just got another one.
const stillRead = 10 * time.Second

// What may be wrong with an instance: that it is not known whether it runs, that it answers nothing, and that
// its log or its former files stay.
const instanceOf, silenceOf, logOf = "instance ", "silence of ", "log of "

// waits reports whether something that is not tried now is tried again later.
func (n *Node) waits(what string) bool {
	keyID, start := strings.CutPrefix(what, string(StartPlugin)+" ")
	if !start {
		for _, of := range []string{instanceOf, silenceOf, logOf} {
			if instance, is := strings.CutPrefix(what, of); is {
				return n.own[instance] != nil
			}
		}
		return false
	}
	now := n.o.Clock.Now()
	for s, a := range n.attempts {
		if s.KeyID == keyID && now.Before(a.notBefore) {
			return true
		}
	}
	return false
}

// drain has all plugins end that are on record, one too that was started just before, and waits for that.
func (n *Node) drain(ctx context.Context) error {
	ticker := n.o.Clock.NewTicker(n.o.Every)
	defer ticker.Stop()
	for {
		n.readInstances(ctx)
		if n.known.blind {
			return errors.New("which plugins run is not known, and so not whether all have ended")
		}
		left := len(n.known.plugins)
		for _, p := range n.known.plugins {
			if n.ended(p) {
				left--
			}
		}
		if left == 0 {
			return nil
		}
		<-ticker.C()
	}
}

// ended has one instance end, a step at a time.
func (n *Node) ended(p Plugin) bool {
	one := n.own[p.Instance]
	switch p.State {
	case Ended:
		err := n.clear(one)
		n.trouble("clear "+one.Spec.KeyID, err)
		return err == nil
	case Ending:
	default:
		n.trouble("stop "+one.Spec.KeyID, n.stop(one))
	}
	return false
}

// forgetWords leaves out what was said by what is wanted no longer.
func (n *Node) forgetWords(o Observation) {
	wanted := o.starts()
	maps.DeleteFunc(n.words, func(s Start, _ string) bool { return !wanted[s] })
	maps.DeleteFunc(n.attempts, func(s Start, _ *attempt) bool { return !wanted[s] })
}
