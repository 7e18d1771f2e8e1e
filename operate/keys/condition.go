package keys

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Condition is a fact for people: what is so, why, since when, and what to do.
type Condition struct {
	Type   string
	Status Status
	Reason string
	// Message is one line.
	Message string
	// Since is when Status or Reason last changed.
	Since time.Time
}

// Status is that of a condition.
type Status string

// The statuses. Unknown is what was not seen.
const (
	True    Status = "True"
	False   Status = "False"
	Unknown Status = "Unknown"
)

// DivergedFor is for how long apiservers may have different key_ids before that is trouble of the plugins.
const DivergedFor = time.Hour

// The reasons that the API does not name.
const (
	recordRefused   = "KeyRecordRefused"
	recordMissing   = "KeyRecordMissing"
	desiredInvalid  = "ConfigurationInvalid"
	changeQueued    = "ChangeQueued"
	nobodyExpected  = "NobodyExpected"
	foreignConfig   = "ForeignConfiguration"
	notInEffect     = "ConfigurationNotInEffect"
	stepBlocked     = "StepBlocked"
	migrationFailed = "MigrationFailed"
	trying          = "PreflightRunning"
	tryRefused      = "PreflightRefused"
	pluginsNotWell  = "PluginsNotWell"
	notConverged    = "HealthReportsNotConverged"
)

// findings are what is to be told, by the type of the condition.
type findings map[string][]finding

type finding struct{ reason, text string }

func (f *findings) add(what, reason, text string) {
	if *f == nil {
		*f = findings{}
	}
	(*f)[what] = append((*f)[what], finding{reason, text})
}

func (f *findings) key(reason, text string)   { f.add(v1alpha1.ConditionKeyDegraded, reason, text) }
func (f *findings) state(reason, text string) { f.add(v1alpha1.ConditionStateDegraded, reason, text) }
func (f *findings) tries(text string)         { f.add(v1alpha1.ConditionPreflightProgressing, trying, text) }
func (f *findings) refused(text string)       { f.add(v1alpha1.ConditionPreflightDegraded, tryRefused, text) }

// queue tells of what is wanted and has to wait. That is no trouble, and is told with what
// there is.
func (f *findings) queue(text string) { f.add(v1alpha1.ConditionEncrypted, changeQueued, text) }

// waits are what a rotation waits for, each told where it belongs.
func (f *findings) waits(all []rotation.Waiting) {
	for _, w := range all {
		switch {
		case w.Reason == "divergent":
			f.add(v1alpha1.ConditionReportsProgressing, notConverged, w.String())
		case w.Reason == "unhealthy":
			f.add(v1alpha1.ConditionPluginsDegraded, pluginsNotWell, w.String())
		case w.Reason == "migrating":
			f.add(v1alpha1.ConditionMigrationProgressing, v1alpha1.ReasonMigrating, w.String())
		case w.Reason == "retrying":
			f.add(v1alpha1.ConditionMigrationDegraded, migrationFailed, w.String())
		case w.ForPeople():
			f.state(stepBlocked, w.String())
		}
	}
}

// conditions are all of them, each time, in one order.
func (m *machine) conditions() []Condition {
	m.found.waits(m.out.Waiting)
	all := []Condition{m.since(m.encrypted())}
	for _, what := range []string{
		v1alpha1.ConditionKeyDegraded, v1alpha1.ConditionStateDegraded,
		v1alpha1.ConditionMigrationProgressing, v1alpha1.ConditionMigrationDegraded,
		v1alpha1.ConditionPreflightProgressing, v1alpha1.ConditionPreflightDegraded,
		v1alpha1.ConditionReportsProgressing, v1alpha1.ConditionPluginsDegraded,
	} {
		c := Condition{Type: what, Status: False, Reason: v1alpha1.ReasonAsExpected}
		if found := m.found[what]; len(found) > 0 {
			c.Status, c.Reason, c.Message = True, found[0].reason, texts(found)
		}
		c = m.since(c)
		if what == v1alpha1.ConditionReportsProgressing && c.Status == True && m.now.Sub(c.Since) >= DivergedFor {
			m.found.add(v1alpha1.ConditionPluginsDegraded, notConverged, c.Message)
		}
		all = append(all, c)
	}
	return all
}

// since is a condition with the time from which on it was so.
func (m *machine) since(c Condition) Condition {
	c.Since = m.now
	for _, was := range m.in.Conditions {
		if was.Type == c.Type && was.Status == c.Status && was.Reason == c.Reason && !was.Since.IsZero() && !was.Since.After(m.now) {
			c.Since = was.Since
		}
	}
	return c
}

func texts(found []finding) string {
	var all []string
	for _, f := range found {
		if !slices.Contains(all, f.text) {
			all = append(all, f.text)
		}
	}
	return short(strings.Join(all, "; "))
}

// maxMessage is the longest message, in bytes: it is a part of an object of Kubernetes.
const maxMessage = 4096

func short(text string) string {
	if len(text) > maxMessage {
		return strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

// encrypted is what is known of what is stored. Where the records cannot be gone by it is
// what was known before.
func (m *machine) encrypted() Condition {
	c := Condition{Type: v1alpha1.ConditionEncrypted, Status: False}
	w, n := m.ring.writer(), m.ring.moving()
	for _, f := range slices.Concat(m.found[v1alpha1.ConditionKeyDegraded], m.found[v1alpha1.ConditionStateDegraded]) {
		if f.reason == recordRefused || f.reason == recordMissing || f.reason == nobodyExpected {
			at := slices.IndexFunc(m.in.Conditions, func(was Condition) bool { return was.Type == v1alpha1.ConditionEncrypted })
			if at < 0 {
				return Condition{Type: v1alpha1.ConditionEncrypted, Status: Unknown, Reason: f.reason, Message: f.text}
			}
			return m.in.Conditions[at]
		}
	}
	switch {
	case n != nil && n.State.Move.Back != nil:
		c.Reason, c.Message = v1alpha1.ReasonEncryptionInProgress, fmt.Sprintf("key %s is being taken back: %s", n.ID, m.underWay())
	case n != nil && n.encrypts():
		c.Reason, c.Message = v1alpha1.ReasonEncryptionInProgress, fmt.Sprintf("on the way to key %s, %s: %s", n.ID, n.kek(), m.underWay())
	case n != nil:
		c.Reason, c.Message = v1alpha1.ReasonDecryptionInProgress, "on the way to plain text: "+m.underWay()
	case w.encrypts() && w.Change != nil:
		c.Reason, c.Message = v1alpha1.ReasonEncryptionInProgress, fmt.Sprintf("with key %s, which is to be for %s: %s", w.ID, strings.Join(w.Change.Resources, ", "), m.underWay())
	case w.encrypts():
		c.Status, c.Reason = True, v1alpha1.ReasonEncryptionCompleted
		c.Message = fmt.Sprintf("%s with key %s, %s", strings.Join(w.Resources, ", "), w.ID, w.kek())
	case m.in.Desired.Mode != Identity:
		c.Reason, c.Message = v1alpha1.ReasonEncryptionInProgress, "there is no key yet"
	case w != nil:
		c.Reason, c.Message = v1alpha1.ReasonDecryptionCompleted, "all is stored as plain text, as is wanted"
	default:
		c.Reason, c.Message = v1alpha1.ReasonEncryptionDisabled, "nothing is encrypted, as is wanted"
	}
	if queued := m.found[v1alpha1.ConditionEncrypted]; len(queued) > 0 {
		c.Message += "; " + texts(queued)
	}
	c.Message = short(c.Message)
	return c
}

// underWay is what is done now, until what is so, and what that waits for.
func (m *machine) underWay() string {
	r := m.head()
	for _, step := range r.State.Steps() {
		if !step.Now {
			continue
		}
		text := step.What + ", until " + step.Gate
		for _, w := range m.out.Waiting {
			text += "; waits: " + w.String()
		}
		return text
	}
	return "at its end"
}
