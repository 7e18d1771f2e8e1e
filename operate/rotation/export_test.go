package rotation

import (
	"reflect"
	"time"
	"unsafe"
)

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

// Guards are the names of all guards that can be taken out.
func Guards() []string {
	var all []string
	for i := range reflect.TypeFor[lax]().NumField() {
		all = append(all, reflect.TypeFor[lax]().Field(i).Name)
	}
	return all
}

// Without is Next and Resume without a guard, or with all.
func Without(guard string) (func(State, Observation, time.Time) (State, Decision), func(State, time.Time) State) {
	var l lax
	if guard != "" {
		field := reflect.ValueOf(&l).Elem().FieldByName(guard)
		*(*bool)(unsafe.Pointer(field.UnsafeAddr())) = true
	}
	return func(s State, o Observation, now time.Time) (State, Decision) { return next(s, o, now, l) },
		func(s State, now time.Time) State { return resume(s, now, l) }
}
