// Package rotation decides what the next step of rotating an encryption key is,
// from what was observed and nothing else.
//
// [Next] is a pure function: a [State] and an [Observation] at a moment go in,
// the next State and a [Decision] come out. It calls nobody, reads no file and
// no clock. Whoever drives a rotation observes the apiservers, calls Next,
// stores the State, carries out the actions and begins again:
//
//	state = rotation.Resume(load(), clock.Now())
//	for {
//		state, decision = rotation.Next(state, observe(), clock.Now())
//		save(state) // before acting: a crash at any point is then harmless
//		carryOut(decision.Actions)
//	}
//
// Actions are what ought to be so, not what to do once. They are repeated until
// an Observation shows that they happened, so each has to be harmless when it is
// carried out twice. Nothing is taken for granted after a while: a time that
// passed is never evidence, only a reason to wait longer.
//
// There are two plans. [Move] is from what writes to something else: the
// configuration changes three times, and apiservers tell what they have in effect.
// [OnePlugin] is for a plugin whose key_id changes while it runs: no file changes,
// but objects have to be rewritten once every apiserver writes under the new key_id.
//
// A key_id is named by its hash here, as in kube-apiserver's metrics, see
// [KeyIDHash].
package rotation
