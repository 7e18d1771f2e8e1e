package vault

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"

	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/kmsplugin"
)

// A held is a token with how many sessions call with it. A session that is opened because a file
// of TLS changed takes the one that there is: another login may use up a secret-id, or be
// refused.
type held struct {
	redact.As
	token
	of   [sha256.Size]byte // what the files of the login had
	lost chan struct{}     // closed when the token is no good

	mu      sync.Mutex
	holders int
	over    bool // another login is needed
}

// hold is the token that there is, if it is good and the login's files are as they were, or that
// of a login.
func (t *Transit) hold(ctx context.Context, asks *client) (*held, error) {
	of, err := t.login.content()
	if err != nil {
		return nil, err
	}
	t.holding.Lock()
	defer t.holding.Unlock()
	if h := t.held; h.take(of) {
		// This asks with the new files, before anybody depends on them.
		l, err := t.config.lookUp(ctx, asks, h.secret)
		if err == nil {
			h.setLease(l)
			return h, nil
		}
		h.leave()
		if !errors.Is(err, kmsplugin.ErrDenied) {
			return nil, err
		}
	}
	token, err := t.login.begin(ctx, asks)
	if err != nil {
		return nil, err
	}
	t.held = &held{As: "a token", token: token, of: of, lost: make(chan struct{}), holders: 1, over: !token.own || t.config.Auth.Cert != nil}
	return t.held, nil
}

// content is a hash of what the files have.
func (l login) content() (of [sha256.Size]byte, err error) {
	all := sha256.New()
	for _, f := range l.files {
		s, err := readSecret(f.what, f.path)
		if err != nil {
			return of, err
		}
		one := sha256.Sum256([]byte(s.text))
		all.Write(one[:])
	}
	return [sha256.Size]byte(all.Sum(nil)), nil
}

// take has one more session hold the token, if another one may.
func (h *held) take(of [sha256.Size]byte) bool {
	if h == nil || h.isLost() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.holders == 0 || h.of != of {
		return false
	}
	h.holders++
	return true
}

// leave reports whether nobody holds it any more.
func (h *held) leave() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holders--
	return h.holders == 0
}

// end has nobody take it any more.
func (h *held) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
}

func (h *held) setLease(l lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease = l
}

func (h *held) leased() lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

// lose tells all who hold it that it is no good.
func (h *held) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isLost() {
		close(h.lost)
	}
}

func (h *held) isLost() bool {
	select {
	case <-h.lost:
		return true
	default:
		return false
	}
}
