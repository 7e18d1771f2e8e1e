package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/reencrypt"
	"github.com/kube-atrest/atrest/operate/rollout"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/drive"
)

// tellEvery is the time between two lines about the same rewriting.
const tellEvery = 5 * time.Second

// teller tells how a rotation goes, a line for each thing that is new. It is safe
// for concurrent use.
type teller struct {
	to io.Writer
	// events is where objects are told instead of lines, or nil.
	events io.Writer

	mu       sync.Mutex
	step     int
	lines    []string // of the latest turn
	problems []string
	told     map[string]time.Time
	done     string
}

func newTeller(s streams, o output) *teller {
	t := &teller{to: s.err, step: -1, told: map[string]time.Time{}}
	if o.events() {
		t.events = s.out
	}
	return t
}

// before tells what a turn is about to do that the one before was not, and what it waits
// for.
func (t *teller) before(turn drive.Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	steps := turn.State.Steps()
	if now := slices.IndexFunc(steps, func(p rotation.Planned) bool { return p.Now }); now != t.step && now >= 0 {
		t.step, t.lines = now, nil
		if !t.event("step", stepEvent{now + 1, len(steps), steps[now].What, steps[now].Gate}) {
			t.line("step %d of %d: %s", now+1, len(steps), steps[now].What)
			t.line("  until: %s", steps[now].Gate)
		}
	}
	d := turn.Decision
	d.Actions = slices.DeleteFunc(slices.Clone(d.Actions), func(a rotation.Action) bool { _, done := a.(rotation.Done); return done })
	lines := linesOf(d)
	if !slices.Equal(lines, t.lines) && len(lines) > 0 && t.event("turn", d) {
		t.lines = lines
		return
	}
	t.news(lines, t.lines)
	t.lines = lines
}

// turn tells what went wrong in a turn.
func (t *teller) turn(turn drive.Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var problems []string
	for _, problem := range turn.Problems {
		problems = append(problems, "problem: "+problem.Error())
		if !slices.Contains(t.problems, problems[len(problems)-1]) {
			t.event("problem", problemEvent{problem.Error()})
		}
	}
	t.news(problems, t.problems)
	t.problems = problems
}

// news are lines that were not there before.
func (t *teller) news(lines, before []string) {
	for _, line := range lines {
		if t.events == nil && !slices.Contains(before, line) {
			t.line("  %s", line)
		}
	}
}

// event tells something as one, and reports whether that is how it is told.
func (t *teller) event(name string, v any) bool {
	if t.events == nil {
		return false
	}
	_ = writeEvent(t.events, name, v) // nobody reads it any more
	return true
}

func linesOf(d rotation.Decision) []string {
	var lines []string
	for _, a := range d.Actions {
		lines = append(lines, "now: "+a.String())
	}
	for _, w := range d.Waiting {
		lines = append(lines, "waiting: "+w.String())
	}
	return lines
}

// printPlan prints all steps of a rotation, and how far it is, shows that it can begin
// or go on, and prints what is waited for.
func (r *rotate) printPlan(ctx context.Context, prepared *rollout.Prepared, store *reencrypt.Store) error {
	s, steps := prepared.State, prepared.State.Steps()
	if r.output == "table" { // it is told what is done before anything is
		printSteps(r.out, s.Plan, steps)
	}
	for _, text := range prepared.Unserved(ctx) {
		r.warn("%s", printable(text))
	}
	waiting, err := prepared.Identify(ctx, store, clock.RealClock{})
	err = errors.Join(prepared.Stranded(ctx, store), err)
	for i := range steps {
		if steps[i].Now {
			steps[i].Waiting = waiting
		}
	}
	told := r.output.write(r.out, steps, func(to io.Writer) error {
		var reasons []string
		for _, w := range waiting {
			reasons = append(reasons, w.String())
		}
		printReasons(to, "WAITING FOR", reasons, asItIs)
		return nil
	})
	switch {
	case told != nil:
		return told
	case err != nil:
		return fmt.Errorf("it could not go on so: %w", err)
	}
	return nil
}

func printSteps(to io.Writer, p rotation.Plan, steps []rotation.Planned) {
	fmt.Fprintf(to, "apiservers: %s\nresources:  %s\n", strings.Join(slices.Sorted(maps.Keys(p.Configs)), ", "), strings.Join(p.Resources, ", "))
	for i, step := range steps {
		mark := ""
		switch {
		case step.Done:
			mark = " (done)"
		case step.Now:
			mark = " (now)"
		}
		fmt.Fprintf(to, "\n%d. %s%s\n   until: %s\n", i+1, printable(step.What), mark, printable(step.Gate))
	}
}

// doneText says what was counted, and what may go now, a line for each.
func doneText(done rotation.Done) string {
	text := "finished: " + counted(int(done.Objects), "object")
	switch {
	case done.KeyID != "":
		text += " under key_id " + printable(done.KeyID)
	case slices.Contains(done.With, rotation.Plain):
		text += " as plain text: nothing of this configuration is encrypted"
	default:
		text += " with " + printable(strings.Join(done.With, ", "))
	}
	switch {
	case done.Otherwise == 0:
	case slices.Contains(done.With, rotation.Plain): // of other resources it may be plain, too
		text += fmt.Sprintf(", and %d of other resources, or stored otherwise: atrest audit", done.Otherwise)
	default:
		text += fmt.Sprintf(", and %d stored otherwise: atrest audit", done.Otherwise)
	}
	for _, etcd := range done.Etcds {
		text += fmt.Sprintf("\n  counted: etcd cluster %x as of revision %d", etcd.Cluster, etcd.Revision)
	}
	for _, provider := range done.Providers {
		text += fmt.Sprintf("\n  may be stopped: the plugin of provider %q", provider)
	}
	for _, name := range done.With {
		if _, key, local := rotation.Local(name); local && key != "" {
			text += fmt.Sprintf("\n  in these files alone: key %s; keep a copy of one of them, and give the new file to whatever manages the configurations, which else puts the old one back", printable(name))
		}
	}
	for _, key := range done.Keys {
		text += fmt.Sprintf("\n  in no configuration any more: key %s; a backup of etcd may need it, so keep a copy as long as one is kept that was made before", printable(key))
	}
	for _, keyID := range done.KeyIDs {
		keyID = printable(keyID)
		text += fmt.Sprintf("\n  may be disabled: key_id %s, when no backup of etcd needs it: atrest retire --key-id %s", keyID, keyID)
	}
	if done.Untold > 0 {
		text += fmt.Sprintf("\n  no key_id may be disabled: %s stored by KMS v1, and which key they need is not known", counted(int(done.Untold), "object"))
	}
	return text
}

// Rewriting tells how the rewriting of a resource goes, from time to time.
func (t *teller) Rewriting(resource string, p migrate.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := time.Now(); at.Sub(t.told[resource]) >= tellEvery {
		if t.told[resource] = at; t.event("rewriting", rewritingOf(resource, p)) {
			return
		}
		t.line("  %s: %s", resource, strings.TrimSpace(rewritingText(p)+" "+p.Waiting))
	}
}

// Rewrote tells what the rewriting of a resource came to.
func (t *teller) Rewrote(resource string, c migrate.Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.event("rewritten", rewrittenEvent{resource, c}) {
		return
	}
	t.line("  %s: %d rewritten, %d unchanged, %d gone, %d failed", resource, c.Rewritten, c.Unchanged, c.Gone, c.Failed)
}

// Finished tells of the end of a rotation, once, where that is not the end of all.
func (t *teller) Finished(done rotation.Done) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := done.String(); text != t.done {
		if t.done = text; !t.event("finished", done) {
			t.line("%s", text)
		}
	}
}

func (t *teller) line(format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ")
	fmt.Fprintf(t.to, "%s %s\n", now(), printable(text))
}
