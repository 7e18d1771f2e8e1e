package migrate

import (
	"fmt"
	"time"
)

// Progress is how a run goes.
type Progress struct {
	// Counts are as in [Checkpoint].
	Counts Counts `json:"counts"`
	// Total is how many objects there are, as the apiserver estimates it; 0 if it
	// does not.
	Total int64 `json:"total,omitempty"`
	// PerSecond is how many objects were patched a second lately, Left how long
	// the rest takes at that rate; negative if that cannot be told.
	PerSecond float64       `json:"perSecond"`
	Left      time.Duration `json:"left"`
	// Elapsed is the time since this run began.
	Elapsed time.Duration `json:"elapsed"`
	// Waiting is why nothing goes on now and for how long, if that is over a second: the
	// apiserver is away or busy. It is empty else.
	Waiting string `json:"waiting,omitempty"`
}

const (
	tellEvery = 250 * time.Millisecond
	// The rate is that of the latest 32 samples, taken a second apart.
	sampleEvery = time.Second
	samples     = 32
	// maxLeft is the longest time that is told as the time left.
	maxLeft = 1000 * time.Hour
)

type sample struct {
	at      time.Time
	handled int64
}

// progress is what Progress is worked out from.
type progress struct {
	began, told time.Time
	total       int64
	samples     []sample
}

func newProgress(now time.Time, handled int64) progress {
	return progress{began: now, samples: []sample{{now, handled}}}
}

// handled are those that cost a patch.
func (c Counts) handled() int64 { return c.Rewritten + c.Unchanged + c.Gone + c.Failed }

// expect notes how many objects there are.
func (r *run) expect(here int, p page) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = ""
	if p.more > 0 || p.next == "" {
		r.progress.total = max(r.progress.total, r.at.Counts.Seen+int64(here)+p.more)
	}
}

// note counts something.
func (r *run) note(c Counts) {
	c.Seen = c.handled() + c.Skipped
	r.mu.Lock()
	r.page.Counts.add(c)
	if c.Retries == 0 {
		r.waiting = ""
	}
	r.mu.Unlock()
	r.tell(false)
}

// waits notes that a request is repeated.
func (r *run) waits(err error, waited time.Duration) {
	if waited >= sampleEvery {
		r.mu.Lock()
		r.waiting = fmt.Sprintf("for %s: %v", waited.Round(time.Second), err)
		r.mu.Unlock()
	}
	r.note(Counts{Retries: 1})
}

// fail notes an object that cannot be rewritten.
func (r *run) fail(o Object, problem string) {
	r.mu.Lock()
	if len(r.at.Failures)+len(r.page.Failures) < maxFailures {
		r.page.Failures = append(r.page.Failures, Failure{Object: o, Problem: problem})
	}
	r.mu.Unlock()
	r.note(Counts{Failed: 1})
}

// tell calls back, unless it did so a moment ago.
func (r *run) tell(end bool) {
	if r.options.Progress == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cluster.clock.Now()
	if !end && now.Sub(r.progress.told) < tellEvery {
		return
	}
	r.progress.told = now
	counts := r.at.Counts
	counts.add(r.page.Counts)
	p := r.progress.report(now, counts, r.options.Expected)
	p.Waiting = r.waiting
	r.options.Progress(p)
}

func (p *progress) report(now time.Time, counts Counts, expected int64) Progress {
	if latest := p.samples[len(p.samples)-1]; now.Sub(latest.at) >= sampleEvery {
		p.samples = append(p.samples, sample{now, counts.handled()})
		p.samples = p.samples[max(0, len(p.samples)-samples):]
	}
	out := Progress{Counts: counts, Total: p.total, Elapsed: now.Sub(p.began), Left: -1}
	if took := now.Sub(p.samples[0].at); took > 0 {
		out.PerSecond = float64(counts.handled()-p.samples[0].handled) / took.Seconds()
	}
	rest := p.total - counts.Seen
	if expected > 0 {
		rest = expected - counts.handled()
	}
	switch {
	case rest <= 0 && p.total > 0:
		out.Left = 0
	case rest > 0 && float64(rest) < out.PerSecond*maxLeft.Seconds():
		out.Left = time.Duration(float64(rest) / out.PerSecond * float64(time.Second))
	}
	return out
}
