package keys

import (
	"reflect"
	"time"
	"unsafe"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// Guards are the names of all guards that can be taken out.
func Guards() []string {
	var all []string
	for i := range reflect.TypeFor[lax]().NumField() {
		all = append(all, reflect.TypeFor[lax]().Field(i).Name)
	}
	return all
}

// Without is Next without a guard, or with all.
func Without(guard string) func(Input, time.Time) Output {
	var l lax
	if guard != "" {
		field := reflect.ValueOf(&l).Elem().FieldByName(guard)
		*(*bool)(unsafe.Pointer(field.UnsafeAddr())) = true
	}
	return func(in Input, now time.Time) Output { return next(in, now, l) }
}

// Validate is what Encode and Decode hold a record to.
func Validate(r Record) error { return r.whole() }

// Hash is that of a preflight.
func Hash(d Desired, secret []byte, beside bundle.KeyID) string { return d.hash(secret, beside) }
