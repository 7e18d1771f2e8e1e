package rollout

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/drive"
)

// mend is what to do about the file of an apiserver that is none of this rotation's. What
// could not read what may be written, as swapped has it, is not to be put in its place.
func (r *stages) mend(apiserver string, swapped bool) string {
	where, like := r.copies.latest(apiserver, r.hashes[apiserver], swapped, r.back), r.like(apiserver)
	switch {
	case where != "":
		return "put it back as it was" + where
	case !r.local || !swapped:
		return "put it back as it was: there is no copy of it in " + string(r.copies) + orLike(", so ", like)
	default:
		return "take out of it what was changed, and nothing else" + orLike(", or ", like) + ": no copy is kept of a file with a new key"
	}
}

func orLike(or, other string) string {
	if other == "" {
		return ""
	}
	return or + "make it as that of " + other
}

// like is another apiserver whose file has the new one and could be that of an apiserver;
// empty if none is known.
func (r *stages) like(apiserver string) string {
	for _, other := range slices.Sorted(maps.Keys(r.hashes)) {
		same := other != apiserver && slices.Equal(r.hashes[other], r.hashes[apiserver])
		if same && slices.Index(r.hashes[other], r.seen[other].hash) > 0 {
			return other
		}
	}
	return ""
}

// instead is what to do about a file that a write of this rotation left as it is not to be.
func (r *stages) instead(apiserver string, to rotation.Stage) string {
	if !r.local || to == rotation.Before {
		return fmt.Sprintf("put %s in its place", r.copies.path(to, apiserver))
	}
	return "let this run go on, which writes it again" + orLike(", or ", r.like(apiserver)) + ": no copy is kept of a file with a new key"
}

// telling adds to what is told of a foreign configuration what to do about it.
func (r *stages) telling(tell func(drive.Turn)) func(drive.Turn) {
	if tell == nil {
		return nil
	}
	return func(t drive.Turn) {
		t.Decision.Waiting = slices.Clone(t.Decision.Waiting)
		for i, w := range t.Decision.Waiting {
			if w.Reason != rotation.ForeignConfig {
				continue
			}
			details := maps.Clone(w.Details)
			for _, apiserver := range w.Instances {
				details[apiserver] += "; it is none of this rotation's: " + r.mend(apiserver, t.State.Move != nil && t.State.Move.Begun())
			}
			t.Decision.Waiting[i].Details = details
		}
		tell(t)
	}
}

// begin notes that the write of a file begins, and keeps it until end: it may be cut off.
func (r *stages) begin(apiserver string, next []byte) error {
	if r.begun == nil {
		r.begun = map[string][]byte{}
	}
	r.begun[apiserver] = next
	return r.copies.begin(apiserver, next)
}

func (r *stages) end(apiserver string) error {
	delete(r.begun, apiserver)
	return r.copies.end(apiserver)
}

// whole is the file that a write was to leave which began and did not end, also one that
// is in no copy, if this process began it.
func (r *stages) whole(apiserver string, file []byte) []byte {
	if whole := r.copies.whole(apiserver, r.hashes[apiserver], file); whole != nil {
		return whole
	}
	if next := r.begun[apiserver]; len(file) > 0 && bytes.HasPrefix(next, file) {
		return next
	}
	return nil
}
