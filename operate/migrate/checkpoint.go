package migrate

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Checkpoint is how far the rewriting of a resource has come. The zero value is
// the beginning. It is plain data for a file, and holds names but no contents of
// objects.
type Checkpoint struct {
	// Resource is what it is about, and Goal what for: [Cluster.Rewrite] refuses
	// to go on from the checkpoint of another.
	Resource schema.GroupVersionResource `json:"resource"`
	Goal     string                      `json:"goal,omitempty"`
	// Continue is the token for the next page, and Last the last object done.
	Continue string `json:"continue,omitempty"`
	Last     Object `json:"last,omitzero"`
	// Anew tells that the list began anew: what comes before Last is done.
	Anew bool `json:"anew,omitempty"`
	// Unordered tells that objects are not listed in the order of their names.
	Unordered bool `json:"unordered,omitempty"`
	// Again tells that an earlier pass for the goal had objects stored again. It is for
	// the caller.
	Again bool `json:"again,omitempty"`
	// Done tells that there is no next page.
	Done bool `json:"done,omitempty"`
	// Counts are of all that was done, also before an interruption.
	Counts Counts `json:"counts"`
	// Failures are the first of the objects that could not be rewritten.
	Failures []Failure `json:"failures,omitempty"`
}

// Counts are numbers of objects, unless they say something else.
type Counts struct {
	// Seen are all, and the sum of the next five.
	Seen int64 `json:"seen"`
	// Rewritten were stored again. Unchanged were not: the apiserver that was
	// asked takes what is stored for current.
	Rewritten int64 `json:"rewritten"`
	Unchanged int64 `json:"unchanged"`
	// Skipped did not need it, by [Options.Needs].
	Skipped int64 `json:"skipped"`
	// Gone were deleted meanwhile.
	Gone int64 `json:"gone"`
	// Failed are in [IncompleteError].
	Failed int64 `json:"failed"`
	// Conflicts is how often an object was read again because somebody else had
	// updated it, and Retries how often a request was repeated because the
	// apiserver was away or busy.
	Conflicts int64 `json:"conflicts"`
	Retries   int64 `json:"retries"`
}

func (c *Counts) add(o Counts) {
	c.Seen += o.Seen
	c.Rewritten += o.Rewritten
	c.Unchanged += o.Unchanged
	c.Skipped += o.Skipped
	c.Gone += o.Gone
	c.Failed += o.Failed
	c.Conflicts += o.Conflicts
	c.Retries += o.Retries
}

// Failure is an object that could not be rewritten, and why.
type Failure struct {
	Object
	Problem string `json:"problem"`
}

// maxFailures is how many failures are kept by name. More end no run: a policy may refuse
// the objects of the first namespaces, and those of the others are to be rewritten.
const maxFailures = 100

// anew goes back to the beginning of the list.
func (c *Checkpoint) anew() {
	c.Continue, c.Anew = "", c.Last.Name != "" && !c.Unordered
	if !c.Anew {
		c.Last = Object{}
	}
}

// passed notes a page that is done.
func (c *Checkpoint) passed(last Object, next string) {
	if last.Name != "" && (c.Unordered || last.String() > c.Last.String()) {
		c.Last, c.Anew = last, false
	}
	c.Continue, c.Done = next, next == ""
}

func (c *Checkpoint) belongsTo(resource schema.GroupVersionResource, goal string) error {
	if c.Resource.Empty() && c.Goal == "" {
		c.Resource, c.Goal = resource, goal
		return nil
	}
	if c.Resource != resource || c.Goal != goal {
		return fmt.Errorf("checkpoint is of %s for %q, not of %s for %q: begin without it", c.Resource, c.Goal, resource, goal)
	}
	if c.Continue == "" && c.Last.Name != "" && !c.Done {
		c.anew()
	}
	return nil
}

// IncompleteError says that a resource was gone through and some of its objects
// could not be rewritten.
type IncompleteError struct {
	Resource schema.GroupVersionResource
	// Failed is how many, and Failures has the first of them.
	Failed   int64
	Failures []Failure
}

// Error is one line and names three objects.
func (e *IncompleteError) Error() string {
	objects := "objects"
	if e.Failed == 1 {
		objects = "object"
	}
	s := fmt.Sprintf("%d %s of %s could not be rewritten", e.Failed, objects, e.Resource.GroupResource())
	for i, f := range e.Failures[:min(len(e.Failures), 3)] {
		s += fmt.Sprintf(" (%d) %s: %s", i+1, f.Object, f.Problem)
	}
	return s + ": see to what keeps them from being updated and run it again"
}

// OutageError says that the apiserver did not answer, or only that it was too
// busy, for longer than [Options.Patience]. The checkpoint is where to go on.
type OutageError struct{ Err error }

// Error is one line.
func (e *OutageError) Error() string {
	return fmt.Sprintf("apiserver is away: %v: run it again when it is back, it goes on where it was", e.Err)
}

// Unwrap is the latest problem.
func (e *OutageError) Unwrap() error { return e.Err }

// ErrUnreadable is why a resource cannot be listed: the apiserver cannot open
// what is stored of it. One object is enough. An audit that decrypts names it.
var ErrUnreadable = errors.New("the apiserver cannot list it, for which one object that does not open is enough: atrest audit --decrypt names it")
