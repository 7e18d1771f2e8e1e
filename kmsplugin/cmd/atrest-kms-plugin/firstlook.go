package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/internal/filestamp"
)

// firstLookFor is how long the start waits to find out what is set up wrongly.
const firstLookFor = 10 * time.Second

// lookedAt is a back end that is looked at once before it is served. The session of that look is
// the first one that the kit gets: to log in again might use up a credential. But one that was opened with
// files that have changed since is none, as the kit takes it to be of those that there are when it opens.
type lookedAt struct {
	kmsplugin.Backend
	credentials []string      // the files that a session is opened with
	within      time.Duration // how long the look may take

	mu      sync.Mutex
	session kmsplugin.Session // of the look, until it is given away
	seen    string            // what the files were before it was opened
}

// first is an error if something is set up wrongly, which is one that wraps mistake. An outage is
// none: it may be over soon.
func (l *lookedAt) first(ctx context.Context, mistake error) error {
	looking, cancel := context.WithTimeout(ctx, l.within)
	defer cancel()
	seen := filestamp.All(l.credentials)
	session, err := l.Backend.Open(looking)
	if err == nil {
		_, err = session.Versions(looking)
	}
	switch {
	case errors.Is(err, mistake) && session != nil:
		return errors.Join(err, session.Close(context.WithoutCancel(ctx)))
	case errors.Is(err, mistake):
		return err
	case err != nil:
		klog.FromContext(ctx).Error(err, "the key cannot be used yet")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session, l.seen = session, seen
	return nil
}

// Open is that of the back end, or what the look has opened.
func (l *lookedAt) Open(ctx context.Context) (kmsplugin.Session, error) {
	former := l.take()
	if former == nil {
		return l.Backend.Open(ctx)
	}
	if filestamp.All(l.credentials) == l.seen {
		return former, nil
	}
	next, err := l.Backend.Open(ctx)
	if failed := former.Close(ctx); failed != nil { // after the other has what they share
		klog.FromContext(ctx).Error(failed, "a session could not be closed")
	}
	return next, err
}

// close closes what the look has opened, if nobody took it: the command was stopped meanwhile.
func (l *lookedAt) close(ctx context.Context) error {
	if session := l.take(); session != nil {
		return session.Close(ctx)
	}
	return nil
}

// take is what the look has opened, once.
func (l *lookedAt) take() kmsplugin.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	session := l.session
	l.session = nil
	return session
}
