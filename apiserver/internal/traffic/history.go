package traffic

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// action is what is done with a Secret, which is a register of a number: that of its
// value, 0 while it is not there.
type action string

const (
	get    action = "get"
	create action = "create"
	update action = "update"
	remove action = "delete"
)

// outcome is how an action ended.
type outcome string

const (
	done    outcome = "done"
	refused outcome = "refused"      // as it was there, or was not
	unknown outcome = "done perhaps" // nobody answered, or with an error of the server
	undone  outcome = "not done"     // nobody heard of it
)

// operation is an action with its number, that which was read if it is get, and its times
// since the beginning of the history.
type operation struct {
	action  action
	number  int
	outcome outcome
	call    time.Duration
	end     time.Duration
}

func (o operation) String() string {
	return fmt.Sprintf("%s %d %s, %v to %v", o.action, o.number, o.outcome, o.call, o.end)
}

// history is what was done with each Secret, by namespace/name. Those reads are in it that have to see what
// was written before.
type history struct {
	began time.Time
	mu    sync.Mutex
	of    map[string][]operation
}

func newHistory() *history { return &history{began: time.Now(), of: map[string][]operation{}} }

func (h *history) now() time.Duration { return time.Since(h.began) }

// add notes an action that was begun at a time and has ended now.
func (h *history) add(name string, a action, number int, call time.Duration, err error) {
	o := operation{a, number, outcomeOf(a, err), call, h.now()}
	switch {
	case o.outcome == undone, a == get && o.outcome == unknown:
		return
	case a == get && o.outcome == refused:
		o.number, o.outcome = 0, done
	case o.outcome == unknown:
		o.end = math.MaxInt64 // an answer may come too late, and what was asked for be done later
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of[name] = append(h.of[name], o)
}

// addAll notes a list of all Secrets of the namespace default, by their numbers.
func (h *history) addAll(numbers map[string]int, call time.Duration) {
	end := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for path := range h.of {
		if name, in := strings.CutPrefix(path, Namespace+"/"); in {
			h.of[path] = append(h.of[path], operation{get, numbers[name], done, call, end})
		}
	}
}

func outcomeOf(a action, err error) outcome {
	switch {
	case err == nil:
		return done
	case a == create && apierrors.IsAlreadyExists(err), a != create && apierrors.IsNotFound(err):
		return refused
	case utilnet.IsConnectionRefused(err), apierrors.IsTooManyRequests(err):
		return undone
	}
	return unknown
}

// register is what every history has to be one of.
var register = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, _ any) (bool, any) {
		number, o := state.(int), input.(operation)
		there := number != 0
		switch {
		case o.action == get:
			return o.number == number, number
		case o.outcome == refused:
			return there == (o.action == create), number
		case there == (o.action == create): // it cannot be done
			return o.outcome == unknown, number
		case o.action == remove:
			return true, 0
		}
		return true, o.number
	},
}

// undecided is when the search for an order has failed.
const undecided = time.Minute

// check requires of every Secret that some order of what was done explains what was read,
// in which nothing comes before what had ended when it began.
func (h *history) check() (operations int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(h.of)) {
		operations += len(h.of[name])
		if found := porcupine.CheckOperationsTimeout(register, recorded(h.of[name]), undecided); found != porcupine.Ok {
			return operations, fmt.Errorf("%s is not linearizable (%s):\n%s", name, found, told(h.of[name]))
		}
	}
	return operations, nil
}

func recorded(all []operation) []porcupine.Operation {
	var recorded []porcupine.Operation
	for i, o := range all {
		recorded = append(recorded, porcupine.Operation{ClientId: i, Input: o, Call: int64(o.call), Return: int64(o.end)})
	}
	return recorded
}

func told(all []operation) string {
	var lines []string
	for _, o := range slices.SortedFunc(slices.Values(all), func(a, b operation) int { return int(a.call - b.call) }) {
		lines = append(lines, o.String())
	}
	return strings.Join(lines, "\n")
}

// RequireLinearizable ends the load, and requires it of all that was done.
func (l *Load) RequireLinearizable(t *testing.T) {
	t.Helper()
	l.End()
	operations, err := l.history.check()
	require.NoError(t, err)
	t.Logf("%d histories of %d reads and writes are linearizable", len(l.history.of), operations)
}
