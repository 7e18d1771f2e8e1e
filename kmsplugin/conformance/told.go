package conformance

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// told is what the plugin was told that nobody else may hear, and what it said in errors.
// All keys of a run begin with one mark, so that looking for that finds each of them. It
// is safe for concurrent use.
type told struct {
	mark  []byte
	forms forms
	calls [6]byte // with which the uid of each call begins

	mu    sync.Mutex
	given int    // keys
	errs  int    // that were looked at
	leak  string // the first call whose error held a key
	named map[string]bool
}

const (
	mostNamed  = 256 // key_ids that are kept
	tellingLen = 16  // bytes of a key_id that no other text has by chance
)

// newTold makes a mark of bytes that are no UTF-8, so that they are printed in few ways.
func newTold() *told {
	mark := random(16)
	for i := range mark {
		mark[i] |= 0xc0
	}
	return &told{mark: mark, forms: formsOf(mark), calls: [6]byte(random(6)), named: map[string]bool{}}
}

// uid is a new one for a call.
func (t *told) uid() string {
	id := uuid.New()
	copy(id[:], t.calls[:])
	return id.String()
}

// hearsKeyID keeps a key_id that Status named.
func (t *told) hearsKeyID(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(id) >= tellingLen && len(t.named) < mostNamed {
		t.named[id] = true
	}
}

// isSpokenOf reports whether a text is of this run's plugin: it has the uid of a call, or a key_id
// that Status named.
func (t *told) isSpokenOf(text []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	begins := uuid.UUID(append(t.calls[:], make([]byte, 10)...)).String()[:13]
	found := bytes.Contains(text, []byte(begins))
	for id := range t.named {
		found = found || bytes.Contains(text, []byte(id))
	}
	return found
}

// key is a new one of 32 bytes.
func (t *told) key() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.given++
	return append(bytes.Clone(t.mark), random(16)...)
}

// isIn reports whether a key of this run is in a text, in any form.
func (t *told) isIn(text []byte) bool { return t.forms.areIn(text) }

// scrub is a text without keys: that of a plugin that puts them there.
func (t *told) scrub(text string) string {
	if t.isIn([]byte(text)) {
		return "(a text that holds a key, which is left out here)"
	}
	return text
}

// heard is a call's error with its name, bounded. One that holds a key is noted.
func (t *told) heard(method string, err error) error {
	if err == nil {
		return nil
	}
	details, _ := proto.Marshal(status.Convert(err).Proto()) // an empty one holds nothing
	held := t.isIn([]byte(err.Error())) || t.isIn(details)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errs++
	if held && t.leak == "" {
		t.leak = method
	}
	return callError{method, status.Convert(err)}
}

// count is how many keys were given and how many errors looked at, and the first call
// whose error held a key, or "".
func (t *told) count() (given, errs int, leak string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.given, t.errs, t.leak
}

// A callError is what came back instead of an answer.
type callError struct {
	method string
	status *status.Status
}

func (e callError) Error() string {
	return fmt.Sprintf("%s: %s: %.300q", e.method, e.status.Code(), e.status.Message())
}

// GRPCStatus has status.Code see the code.
func (e callError) GRPCStatus() *status.Status { return e.status }

// isOfTheMoment reports whether an error of a call says nothing of what was asked: the KMS was
// away or had too much to do, or the caller has gone.
func isOfTheMoment(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted:
		return true
	}
	return false
}
