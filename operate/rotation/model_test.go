package rotation_test

import (
	"maps"
	"math"
	"time"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// The models are small worlds that are searched completely: every order in
// which anything in them can happen. Time goes by in minutes.
const (
	modelHold   = 2
	modelMaxAge = 1
	modelRetry  = 1
)

// machine is Next, or something that is broken.
type machine func(rotation.State, rotation.Observation, time.Time) (rotation.State, rotation.Decision)

// What a broken machine believes.
func believing(believe func(*rotation.State, *rotation.Observation)) machine {
	return func(s rotation.State, o rotation.Observation, now time.Time) (rotation.State, rotation.Decision) {
		plan := s.Plan
		believe(&s, &o)
		s, d := rotation.Next(s, o, now)
		s.Plan = plan
		return s, d
	}
}

var (
	noHold = believing(func(s *rotation.State, _ *rotation.Observation) { s.Plan.Hold = 0 })
	// noAudit takes for granted that a migration that ended left nothing.
	noAudit = believing(func(s *rotation.State, o *rotation.Observation) {
		provider := "kms"
		if s.Move != nil {
			provider = "new"
		}
		o.Audit = &rotation.Audit{StartedAt: s.AuditAfter.Add(1), Etcds: counted, Counts: []rotation.Count{{Resource: "secrets", Provider: provider, KeyID: keyB, Objects: 1}}}
	})
	// noMissing goes by those that answer.
	noMissing = believing(func(s *rotation.State, o *rotation.Observation) {
		configs := map[string][]string{}
		for name, i := range o.Instances {
			if modelNow.Sub(i.CheckedAt) <= modelMaxAge*time.Minute {
				configs[name] = s.Plan.Configs[name]
			}
		}
		if len(configs) > 0 {
			s.Plan.Configs = configs
			maps.DeleteFunc(o.Instances, func(name string, _ rotation.Instance) bool { return configs[name] == nil })
		}
	})
)

// modelNow is always now: what is in the past is so by its age.
var modelNow = start

func ago(minutes int8) time.Time { return modelNow.Add(-time.Duration(minutes) * time.Minute) }

// age is how long ago something was, at most limit.
func age(at time.Time, limit int8) int8 {
	return min(int8(modelNow.Sub(at)/time.Minute), limit)
}

// auditAge is the age of the time from when on an audit counts, which may be to come.
func auditAge(s rotation.State) int8 {
	return int8(min(math.Floor(modelNow.Sub(s.AuditAfter).Minutes()), modelRetry))
}

// shownToBe is an apiserver of which everything is shown at any time.
func shownToBe(all map[string]rotation.Instance, provider, keyID string) rotation.Shown {
	return rotation.Shown{At: modelNow, Identities: rotation.Identities(all), KeyIDs: map[string]string{provider: keyID}, Resources: []string{"secrets"}, Etcds: []uint64{1}}
}
