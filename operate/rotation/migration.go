package rotation

import (
	"maps"
	"slices"
	"time"
)

// Migration is the rewriting of all resources for one goal.
type Migration struct {
	Goal Goal `json:"goal"`
	// Resources are what it is for: all of the plan, or those that an audit found
	// something left of.
	Resources []string `json:"resources"`
	// Ended has the resources that are through. They are not begun again.
	Ended map[string]time.Time `json:"ended,omitempty"`
	// Failures has those that failed and were not begun again since.
	Failures map[string]Failure `json:"failures,omitempty"`
}

// Failure is how a migration of a resource failed last.
type Failure struct {
	At      time.Time `json:"at"`
	Problem string    `json:"problem"`
}

// begin makes a migration, of a round that no other has.
func (s *State) begin(keyID string, resources []string) {
	s.Round++
	s.Migration = &Migration{Goal: Goal{KeyID: keyID, Keyless: s.Move != nil && s.Move.Keyless, Round: s.Round}, Resources: slices.Clone(resources)}
}

// migrate takes in what is told of the migration and says what comes next.
// mayStart reports whether anything may be begun: what runs already goes on. The
// migration is over when no resource is left.
func (s *State) migrate(o Observation, providers []string, mayStart bool, now time.Time) (d Decision, over bool) {
	m := s.Migration
	running := m.take(o.Migrations, now)
	var start []string
	retrying := Waiting{Reason: retrying}
	for _, resource := range m.Resources {
		failure, failed := m.Failures[resource]
		if failure.At.After(now) { // the clock was set back
			failure.At = now
			m.Failures[resource] = failure
		}
		due := failure.At.Add(time.Duration(s.Plan.RetryAfter))
		switch _, ended := m.Ended[resource]; {
		case ended, slices.Contains(running, resource):
		case failed && now.Before(due):
			retrying.add(resource, failure.Problem, due)
		default:
			start = append(start, resource)
		}
	}
	if len(start)+len(running) == 0 && retrying.Details == nil {
		s.Migration = nil
		s.countAfter(now)
		return Decision{}, true
	}
	if mayStart && len(start) > 0 {
		d.Actions = []Action{Migrate{Goal: m.Goal, Providers: slices.Clone(providers), Resources: start}}
		running = append(running, start...)
	}
	if len(running) > 0 {
		d.Waiting = append(d.Waiting, Waiting{Reason: migrating, Details: same(running, "being rewritten")})
	}
	if retrying.Details != nil {
		d.Waiting = append(d.Waiting, retrying)
	}
	return d, false
}

// take notes what ended and what failed, and lists what runs. What is told of
// other goals is of other times.
func (m *Migration) take(reports []Progress, now time.Time) (running []string) {
	for _, p := range reports {
		if _, ended := m.Ended[p.Resource]; ended || p.Goal != m.Goal || !slices.Contains(m.Resources, p.Resource) {
			continue
		}
		at := p.EndedAt
		if at.IsZero() || at.After(now) {
			at = now
		}
		switch p.Phase {
		case Running:
			running = append(running, p.Resource)
			delete(m.Failures, p.Resource)
		case Succeeded:
			m.Ended = put(m.Ended, p.Resource, at)
			delete(m.Failures, p.Resource)
		case Failed:
			// One without a time is new each time it is told, and would never be due.
			if was, known := m.Failures[p.Resource]; !known || !p.EndedAt.IsZero() && at.After(was.At) {
				m.Failures = put(m.Failures, p.Resource, Failure{At: at, Problem: p.Problem})
			}
		}
	}
	return running
}

// again has what was left rewritten again, after a while: it was missed, or written
// since.
func (s *State) again(o Observation, v *view, w Waiting, keyID string, providers []string) Decision {
	w.Until = s.AuditAfter.Add(time.Duration(s.Plan.RetryAfter))
	if v.now.Before(w.Until) {
		return Decision{Waiting: []Waiting{w}}
	}
	s.begin(keyID, slices.Sorted(maps.Keys(w.Details)))
	d, _ := s.migrate(o, providers, true, v.now)
	return d
}

func (w *Waiting) add(name, detail string, until time.Time) {
	w.Details = put(w.Details, name, detail)
	if w.Until.IsZero() || until.Before(w.Until) {
		w.Until = until
	}
}

func put[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	if m == nil {
		m = map[K]V{}
	}
	m[k] = v
	return m
}

func same(names []string, detail string) map[string]string {
	all := map[string]string{}
	for _, name := range names {
		all[name] = detail
	}
	return all
}

// maxFormer bounds how many former key_ids are remembered.
const maxFormer = 100

// remember adds key_ids that were met, each once, the oldest making room.
func remember(former []string, keyIDs ...string) []string {
	for _, keyID := range keyIDs {
		if keyID != "" && !slices.Contains(former, keyID) {
			former = append(former, keyID)
		}
	}
	return former[max(0, len(former)-maxFormer):]
}

func without(keyIDs []string, not ...string) []string {
	return slices.DeleteFunc(slices.Clone(keyIDs), func(keyID string) bool { return slices.Contains(not, keyID) })
}
