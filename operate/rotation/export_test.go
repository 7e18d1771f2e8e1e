package rotation

import "time"

// Expected is what the apiservers of a cluster are held to, and from when on a write
// of theirs counts.
type Expected struct {
	Instances  []string
	Providers  []string
	MaxAge     time.Duration
	WroteSince time.Time
}

// Convergence is the hash of the key_id that all of them write under, or what is in
// the way.
type Convergence struct {
	KeyID   string
	Waiting []Waiting
}

// Converge is what a rotation makes of one look at them.
func Converge(x Expected, o Observation, now time.Time) Convergence {
	v := look(x.Instances, x.MaxAge, o, now, lax{})
	return Convergence{KeyID: v.converged(x.Providers, x.WroteSince), Waiting: v.waiting()}
}
