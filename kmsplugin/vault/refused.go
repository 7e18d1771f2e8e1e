package vault

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// A refused remembers a login that Vault refused, and has it not tried again soon: Vault counts
// wrong logins by the role-id, and after some, 5 by default, takes none of that role for a time,
// from whichever node. The zero value remembers nothing.
type refused struct {
	mu    sync.Mutex
	of    [sha256.Size]byte // with what
	err   error
	pause time.Duration
	until time.Time
}

const (
	// firstPause is after a wrong login, and is longer than the 15 minutes after which Vault
	// forgets those that it has counted. Each is twice as long, to lastPause.
	firstPause, lastPause = 20 * time.Minute, 4 * time.Hour
	// lockPause is while the role may be locked: what is tried then is not counted.
	lockPause = time.Minute
)

// login logs in with something that has this hash, unless that was refused a short time ago.
func (r *refused) login(now clock.PassiveClock, of [sha256.Size]byte, login func() (token, error)) (token, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of != r.of {
		r.of, r.err, r.pause = of, nil, 0
	}
	if r.err != nil && now.Now().Before(r.until) {
		return token{}, r.err
	}
	t, err := login()
	switch {
	case !errors.Is(err, kmsplugin.ErrDenied):
		r.err, r.pause = nil, 0
		return t, err
	case hasStatus(err, http.StatusForbidden):
		r.until = now.Now().Add(jittered(lockPause))
		r.err = fmt.Errorf("%w; wrong logins, from whichever node, may have locked the role: Vault then takes none for 15 minutes, unless it is configured in another way", err)
	default:
		r.pause = min(max(2*r.pause, firstPause), lastPause)
		r.until = now.Now().Add(jittered(r.pause))
		r.err = fmt.Errorf("%w; write another secret-id to the file or, if Vault was set right, restart the plugin: by itself it does not try this one again before %s, as wrong logins lock the role for all who use it",
			err, r.until.UTC().Format(time.RFC3339))
	}
	return token{}, r.err
}

// jittered is d, or up to half of it more, so that plugins do not try at one time.
func jittered(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*float64(d)/2)
}
