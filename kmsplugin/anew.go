package kmsplugin

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/kmsplugin/internal/filestamp"
)

// coming is a session that is opened beside the one in use, which is looked at meanwhile.
type coming struct {
	done    chan struct{} // closed when there is one, or an error
	session *opened
	gone    <-chan struct{} // closed when nothing is left of one that came too late
	err     error
}

// versions asks for the versions, of another session if this one is over or was opened with
// other credentials. One that does not tell its versions, or does not wrap, takes no other's
// place while that does; it is kept and asked again, since what it logged in with may be used up.
// One that is over is used until it fails.
func (r *runner) versions(ctx context.Context) (found Versions, replaced *opened, err error) {
	seen := filestamp.All(r.config.Credentials)
	why := r.reason(seen)
	next, trouble := r.anew(ctx, why, seen)
	var offered Versions
	tells := false
	if next != nil {
		if offered, trouble = r.ask(ctx, next); r.open == nil {
			return offered, r.goOver(next, why), trouble
		}
		if tells = trouble == nil; tells {
			trouble = r.wraps(ctx, next, offered)
		}
		if trouble == nil {
			return offered, r.goOver(next, why), nil
		}
	}
	if r.open == nil {
		return Versions{}, nil, trouble
	}
	if found, err = r.ask(ctx, r.open); err == nil && tells {
		err = r.wraps(ctx, r.open, found)
	}
	switch {
	case why == "":
		r.log.credentials.over(r.log, "the credentials are again those that the back end was opened with")
	case trouble == nil:
	case err == nil:
		r.log.credentials.lasts(r.log, trouble, lasting[why])
	case next != nil && why == AfterEnd, tells && r.state.Load().trouble != nil:
		// Neither goes, and this one may unwrap.
		return offered, r.goOver(next, why), trouble
	default:
		err = fmt.Errorf("the back end cannot be opened anew: %w; and as it was opened before: %w", trouble, err)
	}
	return found, nil, err
}

// wraps is an error if a session does not wrap under the version that would be announced.
func (r *runner) wraps(ctx context.Context, o *opened, found Versions) error {
	would, err := r.state.Load().announcing.next(found, r.config, r.config.Clock.Now())
	if err != nil {
		return nil // whichever session it is
	}
	return r.probe(ctx, o, *would.version)
}

// lasting is what the log says of a session that is used while another one should be.
var lasting = map[Reason]string{
	AfterCredentials: "the credentials changed, and the back end cannot be opened with them: it is used as it was opened before",
	AfterEnd:         "the session is over, and the back end cannot be opened anew: it is used as it was opened before, for as long as that goes",
}

// reason is why a session has to be opened, or empty.
func (r *runner) reason(seen string) Reason {
	switch {
	case r.open == nil:
		return AtStart
	case r.open.isOver():
		return AfterEnd
	case seen != r.open.seen:
		return AfterCredentials
	}
	return ""
}

// anew is a session that was opened for this reason, if there is one by now, and why there is
// none. It waits only where there is no other to look at.
func (r *runner) anew(ctx context.Context, why Reason, seen string) (*opened, error) {
	failed := r.arrive()
	if next := r.ready; next != nil && (why == "" || next.seen != seen || next.isOver()) {
		r.ready = nil
		r.drop(ctx, next)
	}
	switch {
	case why == "":
		r.failed = nil
	case r.ready == nil && r.coming == nil && !failed && r.looked.Sub(r.tried) >= soon:
		r.begin(ctx, seen)
	}
	if r.coming != nil && r.open == nil {
		r.attend(r.coming)
		r.arrive()
	}
	return r.ready, r.failed
}

// attend waits until one is opened. What takes longer than a call may is told of before it has
// ended, unless it is told of already that something is wrong.
func (r *runner) attend(c *coming) {
	timer := r.config.Clock.NewTimer(r.config.CallTimeout)
	defer timer.Stop()
	select {
	case <-c.done:
		return
	case <-timer.C():
	}
	if r.log.trouble.since.IsZero() {
		r.log.logger.Error(nil, "nothing can be wrapped yet: the back end is opened, and has not answered", "after", r.config.CallTimeout.String(), "givenUpAfter", r.config.OpenTimeout.String())
	}
	<-c.done
}

// begin opens one; the next look is when that is done.
func (r *runner) begin(ctx context.Context, seen string) {
	c := &coming{done: make(chan struct{})}
	r.coming, r.tried = c, r.looked
	go func() {
		defer close(c.done)
		began := r.began()
		if c.session, c.gone, c.err = open(ctx, r.backend, r.config); c.err == nil {
			c.session.seen = seen
		}
		r.called("open", began, c.err)
	}()
}

// arrive takes what begin has opened, once that is done, and is true if there was an error.
func (r *runner) arrive() (failed bool) {
	if r.coming == nil || !isClosed(r.coming.done) {
		return false
	}
	r.late = append(slices.DeleteFunc(r.late, isClosed), r.coming.gone)
	r.ready, r.failed, r.coming = r.coming.session, r.coming.err, nil
	return r.failed != nil
}

// goOver has a session called from now on, and gives back the one that was until now.
func (r *runner) goOver(next *opened, why Reason) (replaced *opened) {
	replaced, r.open, r.ready = r.open, next, nil
	if why != AtStart {
		r.log.credentials = spell{}
		r.log.logger.Info("the back end was opened anew", "why", string(why))
	}
	if f := r.config.Observer.Opened; f != nil {
		f(why)
	}
	return replaced
}

// end closes what is open.
func (r *runner) end(ctx context.Context) {
	if r.coming != nil {
		<-r.coming.done
		r.arrive()
	}
	r.drop(ctx, r.ready)
	r.drop(ctx, r.open)
	r.closing.Wait()
	r.leave(ctx)
}

// leave waits for the end of what was still opening, as long as for that of a session: a process
// that ends meanwhile could not take back what it has begun.
func (r *runner) leave(ctx context.Context) {
	waiting, cancel := r.config.within(ctx, r.config.CallTimeout)
	defer cancel()
	for _, late := range r.late {
		select {
		case <-late:
		case <-waiting.Done():
			klog.FromContext(ctx).Error(nil, "the back end is still being opened, and is left so")
			return
		}
	}
}

func (o *opened) isOver() bool { return isClosed(o.ended) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
