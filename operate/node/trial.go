package node

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"sync/atomic"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/preflight"
)

// A trial is of one instance that a bundle asks for which is to be accepted, in a goroutine of its
// own. What it finds is of one hash: of the settings, the files and the program, and of what is expected.
type trial struct {
	hash, instance string
	verdict        atomic.Pointer[preflight.Verdict]
	logged         preflight.Outcome
	cancel         context.CancelFunc
	ended          chan struct{}
}

func (t *trial) end() {
	t.cancel()
	<-t.ended
}

// begin has an instance tried until it passes or is refused for good. What its plugin says is shown
// without its credentials. Where it takes the place of another, that is asked by the stable name.
func (n *Node) begin(ctx context.Context, one *own, c preflight.Candidate, takesPlace bool) *trial {
	ctx, cancel := context.WithCancel(ctx)
	t := &trial{hash: c.Hash, instance: one.Spec.Instance, cancel: cancel, ended: make(chan struct{})}
	hidden := slices.Clone(one.secrets)
	how := preflight.Trial{Tries: -1, Clock: n.o.Clock, Each: func(v preflight.Verdict) {
		if ctx.Err() != nil { // it was cut short, and tells nothing
			return
		}
		if v.Failure != nil {
			v.Failure = &preflight.Failure{Step: v.Failure.Step, Problem: v.Failure.Problem, Text: hidden.shown([]byte(v.Failure.Text))}
		}
		t.verdict.Store(&v)
		n.again()
	}}
	spec, runner := one.Spec, n.o.Runner
	inUse := url.URL{Scheme: "unix", Path: stable(spec)}
	go func() {
		defer close(t.ended)
		conn, err := dial(spec, runner, n.o.Timeout)
		if err != nil {
			return // no address is wrong that is none
		}
		defer conn.Close()
		c.Plugin = envelope.Over(conn)
		if takesPlace {
			if c.InUse, err = envelope.Dial(envelope.Endpoint(inUse.String()), n.o.Timeout, nil); err != nil {
				return
			}
			defer c.InUse.Close()
		}
		how.Of(ctx, c)
	}()
	return t
}

// tryPlugins has all plugins tried that the candidate asks for anew, and puts what was found into
// the observation.
func (n *Node) tryPlugins(ctx context.Context, o *Observation) {
	o.Refused = map[Start]string{}
	d := decider{o: *o, candidate: o.Candidate}
	wanted := o.starts()
	maps.DeleteFunc(n.trials, func(s Start, t *trial) bool {
		over := !wanted[s] && (o.Candidate != nil || !t.refused()) // a folder may be away for a moment
		if over {
			t.end()
		}
		return over
	})
	if o.Candidate == nil {
		return
	}
	for keyID := range o.Candidate.Keys {
		if key, ok := d.tried(keyID); ok {
			n.tryPlugin(ctx, o, &d, Start{keyID, key.Settings})
		}
	}
}

func (n *Node) tryPlugin(ctx context.Context, o *Observation, d *decider, start Start) {
	key, to := o.Candidate.Keys[start.KeyID], pluginOf(n.known.candidate, start.KeyID)
	c := preflight.Candidate{Expected: key.KeyIDHash}
	former, _, runs := d.accepted(start.KeyID)
	if seen, ok := n.kept.keys[start.KeyID]; ok && runs {
		c.Samples = append(c.Samples, seen.Sample)
	}
	p, there := d.chosen(start.KeyID, start.Settings)
	there = there && p.State == Serving && p.Well && p.Files == key.Files
	c.Hash = n.hashOf(to, key, c)
	t := n.trials[start]
	if t != nil && (t.hash != c.Hash || there && t.instance != p.Instance && !t.refused()) {
		t.end()
		delete(n.trials, start)
		t = nil
	}
	if t == nil {
		if !there {
			return
		}
		one := n.own[p.Instance]
		c.Steps = []preflight.Step{preflight.QuickChecks(one.Spec.Socket)}
		if n.o.Steps != nil {
			c.Steps = append(c.Steps, n.o.Steps(to, one.Spec.Socket)...)
		}
		t = n.begin(ctx, one, c, runs)
		n.trials[start] = t
	}
	n.tell(start, t)
	if t.refused() {
		o.Refused[start] = t.verdict.Load().Failure.Text
	}
	if i := slices.IndexFunc(o.Plugins, func(q Plugin) bool { return q.Instance == t.instance }); i >= 0 && there {
		var from *bundle.Plugin
		if runs {
			from = n.kept.plugin(start.KeyID)
		}
		found := t.found(from, to, bundle.Evidence{Was: former.KeyIDHash, Is: p.KeyIDHash})
		if err := n.free(n.own[p.Instance].Spec); found.Passed && err != nil {
			found = Tried{Why: err.Error()}
		}
		o.Plugins[i].Tried = found
	}
}

func (t *trial) refused() bool {
	v := t.verdict.Load()
	return v != nil && v.Outcome == preflight.Refused
}

// found is what a trial tells of a plugin that is to take the place of another, from, if there is
// one: one that passed has opened what that wrapped, where there was such a thing.
func (t *trial) found(from, to *bundle.Plugin, seen bundle.Evidence) Tried {
	v := t.verdict.Load()
	switch {
	case v == nil:
		return Tried{}
	case v.Outcome != preflight.Passed:
		return Tried{Why: "its plugin is tried again: " + v.Failure.Text}
	case from == nil:
		return Tried{Passed: true}
	case seen.Was == "":
		return Tried{Why: "it is not known which key the one has that it takes the place of, which has to work once"}
	}
	seen.Opened = bundle.Yes
	c := bundle.Compare(from, to, seen)
	return Tried{Passed: c.TakenInPlace(), Why: string(c.Effect) + ": " + c.Why}
}

// hashOf names exactly what is tried. It has the salt of the bundle, as people see it.
func (n *Node) hashOf(p *bundle.Plugin, key Key, c preflight.Candidate) string {
	samples, _ := json.Marshal(c.Samples) // which have nothing that fails
	program := ""
	if r, ok := n.o.Runner.(interface{ ProgramNow(bundle.Program) string }); ok {
		program = r.ProgramNow(p.Settings().Program)
	}
	return hashed.Name(joined(n.known.candidate.Salt(), []byte(key.Settings), []byte(key.Files), []byte(program), []byte(c.Expected), samples))
}

// tell logs how a trial is, when that changes.
func (n *Node) tell(start Start, t *trial) {
	v := t.verdict.Load()
	if v == nil || v.Outcome == t.logged {
		return
	}
	t.logged = v.Outcome
	text := "trial of keyID " + start.KeyID + ", " + t.instance + ": " + string(v.Outcome)
	if v.Failure != nil {
		text += ": " + v.Failure.Text
	}
	n.o.Log(text)
}

// tried is what all trials have found, by keyID.
func (n *Node) tried() []TrialReport {
	var all []TrialReport
	for start, t := range n.trials {
		if v := t.verdict.Load(); v != nil {
			all = append(all, TrialReport{start.KeyID, *v})
		}
	}
	slices.SortFunc(all, func(a, b TrialReport) int { return cmp.Or(cmp.Compare(a.KeyID, b.KeyID), cmp.Compare(a.Hash, b.Hash)) })
	return all
}
