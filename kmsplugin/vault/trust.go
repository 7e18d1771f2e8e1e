package vault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// trust is what Vault was seen to do as it was asked, part by part: with a slow Vault one look may
// not have the time for all of it, and the next one goes on. It is read-only.
type trust struct {
	binds, separates bool
	// tried is what is to be unwrapped under another key_id than it was wrapped under, or nil.
	tried []byte
	// version and made are of the version that made it.
	version int
	made    int64
}

// verify refuses a Vault that takes what it is asked and does not do it. What was seen once is
// not tried again. An error without a refusal is why it could not be seen.
func (s *session) verify(ctx context.Context, k *key) (refused bool, err error) {
	m := &s.transit.known
	if !m.trusts().binds {
		if refused, err = s.binds(ctx, k); err != nil {
			return refused, err
		}
		m.saw(func(t *trust) { *t = trust{binds: true, separates: t.separates} })
	}
	if !m.trusts().separates {
		if refused, err = s.separates(ctx); err != nil {
			return refused, err
		}
		m.saw(func(t *trust) { t.separates = true })
	}
	return false, nil
}

// binds refuses a Vault that leaves associated_data away, as those before 1.13 do: a DEK would
// unwrap under any key_id.
func (s *session) binds(ctx context.Context, k *key) (refused bool, err error) {
	ciphertext, err := s.bound(ctx, k)
	if err != nil {
		return false, err
	}
	switch _, err = s.decrypt(ctx, ciphertext, []byte("another key_id")); {
	case err == nil:
		s.transit.known.saw(func(t *trust) { t.tried = nil })
		return true, fmt.Errorf("%w: %w: Vault does not bind a DEK to its key_id: it leaves associated_data away: use Vault 1.13 or later, or OpenBao", kmsplugin.ErrKeyDisabled, ErrMistake)
	case errors.Is(err, kmsplugin.ErrInvalid):
		return false, nil
	}
	return false, err
}

// bound is something that the key's latest version has wrapped under a key_id, in this look or
// in one before. That of a key that is gone would not unwrap under any, and tell nothing.
func (s *session) bound(ctx context.Context, k *key) ([]byte, error) {
	made := k.made[k.latest]
	if t := s.transit.known.trusts(); t.tried != nil && t.version == k.latest && t.made == made {
		return t.tried, nil
	}
	ciphertext, used, err := s.encrypt(ctx, k.latest, []byte("no DEK, to see whether it is bound"), []byte("one key_id"))
	if err == nil {
		s.transit.known.saw(func(t *trust) { t.tried, t.version, t.made = ciphertext, used, made })
	}
	return ciphertext, err
}

// nowhere is the name of a namespace that nobody has.
const nowhere = "atrest-looks-whether-namespaces-are-heeded"

// separates refuses a Vault that heeds no namespaces, as that of the Community Edition does: the
// key would be one of the root, or the login there, whatever the config says. It has the key in a
// namespace that there is not.
func (s *session) separates(ctx context.Context) (refused bool, err error) {
	c := s.transit.config
	given := cmp.Or(c.Namespace, c.AuthNamespace)
	if given == "" {
		return false, nil
	}
	err = s.client.ask(ctx, request{method: http.MethodGet, path: c.Mount + "/keys/" + c.Key, namespace: given + "/" + nowhere, token: s.held.secret, safe: true}, nil)
	switch {
	case err == nil:
		return true, fmt.Errorf("%w: %w: this Vault heeds no namespaces, as the Community Edition: leave the namespace %s away", kmsplugin.ErrKeyDisabled, ErrMistake, given)
	case errors.Is(err, kmsplugin.ErrDenied), errors.Is(err, kmsplugin.ErrUnknownKey), hasStatus(err, http.StatusNotFound):
		return false, nil
	}
	return false, err
}
