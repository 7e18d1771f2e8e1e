package rotation

import (
	"slices"
	"time"
)

// Restart asks for the start of an instance that does not follow its file, which has this
// hash and is to be in effect then. There is one at a time, however often a rotation ends
// and is gone on with.
type Restart struct {
	Instance string `json:"instance"`
	Hash     string `json:"hash"`
}

func (Restart) name() string { return "restart" }

// String is one line for people.
func (a Restart) String() string { return "restart " + a.Instance + ", which does not follow its file" }

// restarting is the start that was asked for last, and when.
type restarting struct {
	Restart
	At time.Time `json:"at"`
}

// restarts adds to a decision the start of one instance that lacks nothing else. Its file
// and those of all others are as they are to be, and any of them may start anew at any
// time. It is the next one's turn when it is back, ready and with its file in effect, and
// while every other one is ready.
func (s *State) restarts(v *view, d Decision) Decision {
	if s.Restarting != nil && s.Restarting.over(v, s.Plan) {
		s.Restarting = nil
	}
	due := v.due(s.Plan, d)
	if !s.Plan.Restarts {
		return d
	}
	if r := s.Restarting; r != nil {
		w := Waiting{Reason: inRestart, Instances: []string{r.Instance}, Details: map[string]string{r.Instance: v.away(r.Instance)}}
		if until := r.until(s.Plan); v.now.Before(until) && !r.At.After(v.now) { // or else the clock was set back
			w.Until = until
			d.Waiting = append(d.Waiting, w)
			return d
		}
		d.Waiting = append(d.Waiting, w)
		due = slices.DeleteFunc(due, func(name string) bool { return name != r.Instance })
	}
	unready := Waiting{Reason: notReady, Details: map[string]string{}}
	for _, name := range v.expected {
		if why := v.unready(name); why != "" {
			unready.Instances, unready.Details[name] = append(unready.Instances, name), why
		}
	}
	for _, name := range due {
		if len(without(unready.Instances, name)) == 0 {
			s.Restarting = &restarting{Restart{Instance: name, Hash: v.usable[name].FileHash}, v.now}
			d.Actions = append(d.Actions, s.Restarting.Restart)
			return d
		}
	}
	if len(due) > 0 {
		d.Waiting = append(d.Waiting, unready)
	}
	return d
}

// due are the instances that need nothing but a start, by a decision of which no file is
// written and that waits for nothing else. One that does not answer may be starting. Where
// it is had, nobody is told to do it.
func (v *view) due(p Plan, d Decision) (due []string) {
	for _, a := range d.Actions {
		if _, writes := a.(WriteConfig); writes {
			return nil
		}
	}
	at := slices.IndexFunc(d.Waiting, func(w Waiting) bool { return w.Reason == otherConfig })
	if at < 0 {
		return nil
	}
	follows := false
	for _, name := range d.Waiting[at].Instances {
		switch i := v.usable[name]; {
		case i.FileHash == i.ConfigHash || !slices.Contains(p.Configs[name], i.FileHash):
		case !i.Fixed:
			follows = true
		case i.Problem == "":
			due = append(due, name)
		}
	}
	if p.Restarts && !follows {
		d.Waiting[at].Remedy = ""
	}
	if slices.ContainsFunc(d.Waiting, func(w Waiting) bool { return w.Reason != otherConfig && w.Reason != unproven && w.Reason != unshown }) {
		return nil
	}
	return due
}

// unready is why an instance is not known to serve, empty if it is.
func (v *view) unready(name string) string {
	switch i, usable := v.usable[name]; {
	case i.Problem != "":
		return i.Problem
	case !usable:
		return "it did not answer lately"
	default:
		return i.Unready
	}
}

// until is from when on an instance that is not back may be started once more.
func (r *restarting) until(p Plan) time.Time { return r.At.Add(time.Duration(p.RetryAfter)) }

// over reports whether the instance serves with what it was to have in effect; or, after
// a while, with its file, which may have been taken back.
func (r *restarting) over(v *view, p Plan) bool {
	i := v.usable[r.Instance]
	has := i.ConfigHash == r.Hash || i.ConfigHash == i.FileHash && !v.now.Before(r.until(p))
	return has && v.unready(r.Instance) == "" || !slices.Contains(v.expected, r.Instance)
}

// away is why an instance is not back.
func (v *view) away(name string) string {
	if why := v.unready(name); why != "" {
		return why
	}
	return "it has not the configuration of its file in effect"
}
