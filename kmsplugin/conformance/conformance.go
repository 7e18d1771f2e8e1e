package conformance

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/utils/clock"
)

// A Need is something that a check needs beside the socket: a function of [Target].
type Need string

// The needs, by the names of the functions.
const (
	NeedRotate    Need = "rotate"
	NeedBreak     Need = "break"
	NeedMend      Need = "mend"
	NeedRecreate  Need = "recreate"
	NeedRestart   Need = "restart"
	NeedKill      Need = "kill"
	NeedTerminate Need = "terminate"
	NeedSecond    Need = "second"
	NeedLog       Need = "log"
)

// A Check is one thing that a plugin has to do.
type Check struct {
	// ID is in kebab-case, and stays what it is.
	ID string `json:"id"`
	// Says is what has to hold, in a sentence.
	Says string `json:"says"`
	// Source is the rule or the incident that it comes from.
	Source string `json:"source"`
	// Suffers is what an apiserver suffers under a plugin that fails it.
	Suffers string `json:"suffers"`
	// Needs are what it cannot be tried without.
	Needs []Need `json:"needs,omitempty"`

	run        func(context.Context, *session) error
	afterwards bool // it looks back, and needs no plugin any more
}

// Checks are all of them, in the order in which they are run: those that may leave a bad
// plugin in a bad state come last.
func Checks() []Check {
	return slices.Concat(statusChecks(), wrappingChecks(), labelChecks(), loadChecks(), refusalChecks(),
		rotationChecks(), troubleChecks(), recreateChecks(), socketChecks(), processChecks())
}

// Target is a plugin that runs. All but Endpoint may be nil; then the checks that need it
// are not tried. The functions are called one at a time, with a ctx whose end they
// should obey, and an error is why they could not do it. Mend, Recreate and Restart leave
// nothing behind that is half done: theirs does not end with the run's, and they bound themselves.
type Target struct {
	// Endpoint is as in an EncryptionConfiguration: unix:///path, or unix:///@name for
	// an abstract socket.
	Endpoint string
	// Rotate has the KMS make a new version of the key. It returns when the KMS has it;
	// the plugin may be slower.
	Rotate func(context.Context) error
	// Break takes the KMS, the credentials or the key away from the plugin, and Mend
	// gives them back. Mend is called after every Break, also after one that failed.
	Break, Mend func(context.Context) error
	// Breaks is which of them Break takes away; then the errors have to tell of that, and
	// of any kind of trouble if it is empty.
	Breaks Loss
	// Recreate deletes the key and makes another one under the same name. What was
	// wrapped before is lost.
	Recreate func(context.Context) error
	// Restart ends the plugin, if it runs, and starts it. It leaves a socket file that is there to
	// the plugin.
	Restart func(context.Context) error
	// Kill ends the plugin without asking it, as SIGKILL does, and Terminate asks it to
	// end, as SIGTERM does, and need not wait. Restart has to bring it back.
	Kill, Terminate func(context.Context) error
	// Second starts another plugin on the same endpoint. It returns when that has ended,
	// and ends it when ctx does. An error says how it ended, also by ctx, with what it
	// printed, or, if it wraps [ErrNotRun], that it never began.
	Second func(context.Context) error
	// Log is all that the plugin has logged since the run began. It is known for the plugin's by
	// the uid of a call, by a key_id, or by the path of the socket.
	Log func() ([]byte, error)
}

// ErrNotRun is for [Target.Second]: there was no other plugin.
var ErrNotRun = errors.New("not run")

// has reports whether a need is met.
func (t Target) has(n Need) bool {
	call, ok := map[Need]func(context.Context) error{
		NeedRotate: t.Rotate, NeedBreak: t.Break, NeedMend: t.Mend, NeedRecreate: t.Recreate, NeedRestart: t.Restart,
		NeedKill: t.Kill, NeedTerminate: t.Terminate, NeedSecond: t.Second,
	}[n]
	return ok && call != nil || n == NeedLog && t.Log != nil
}

// Options are how a plugin is asked. The zero value of each is its default.
type Options struct {
	// Only are the IDs of the checks to run; default all.
	Only []string
	// Interval is how soon Status has to tell of a change or of trouble, and how soon
	// a plugin has to be back after a restart; default 60 s, in which an apiserver asks.
	Interval time.Duration
	// Timeout is how long a call may take; default 3 s, as in an EncryptionConfiguration.
	Timeout time.Duration
	// Rotations is how often the key is rotated in search of a race; default 3.
	Rotations int
	// Each is called with each result as it is there; default nothing.
	Each func(Result)
	// Clock measures the Interval and paces the asking in it. How long a call takes is
	// always measured by the system's.
	Clock clock.Clock
}

func (o Options) withDefaults() Options {
	if o.Interval == 0 {
		o.Interval = time.Minute
	}
	if o.Timeout == 0 {
		o.Timeout = 3 * time.Second
	}
	if o.Rotations == 0 {
		o.Rotations = 3
	}
	if o.Each == nil {
		o.Each = func(Result) {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// Outcome is how a check ended.
type Outcome string

// The outcomes.
const (
	Passed   Outcome = "passed"
	Failed   Outcome = "failed"
	NotTried Outcome = "not tried" // for want of a function of [Target], or of what one was to leave
	Unknown  Outcome = "unknown"   // it could not be carried out
)

// Result is what became of a check.
type Result struct {
	Check
	Outcome Outcome `json:"outcome"`
	// Why is what was seen, of one that failed, or why nothing is known. It holds no
	// plaintext.
	Why string `json:"why,omitempty"`
	// Missing are the needs that are not met, of one that was not tried for that.
	Missing []Need        `json:"missing,omitempty"`
	Took    time.Duration `json:"tookNanoseconds,omitempty"`
}

// String is the result in a few lines: what was seen, and what that means.
func (r Result) String() string {
	text := r.ID + " " + string(r.Outcome)
	if r.Why != "" {
		text += ": " + r.Why
	}
	if r.Outcome == Failed {
		text += "\n  wanted: " + r.Says + "\n  an apiserver suffers: " + r.Suffers + "\n  source: " + r.Source
	}
	return text
}

// Report is what became of all that were asked for.
type Report struct {
	Endpoint string   `json:"endpoint"`
	Results  []Result `json:"results"`
}

// Count is how many checks had an outcome.
func (r *Report) Count(o Outcome) (n int) {
	for _, result := range r.Results {
		if result.Outcome == o {
			n++
		}
	}
	return n
}
