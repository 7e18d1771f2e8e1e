package vault_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// hurry stands before Vault and lets each look have so many answers; then its time is over.
type hurry struct {
	left int
	end  context.CancelFunc
	seen []string // what was asked in this look
}

func (h *hurry) handle(w http.ResponseWriter, r *http.Request, next http.Handler) {
	what, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/transit/"), "/")
	nowhere := strings.Contains(r.Header.Get("X-Vault-Namespace"), "atrest-looks")
	if nowhere {
		what = "nowhere"
	}
	h.seen = append(h.seen, what)
	h.left--
	switch {
	case h.left < 0:
		h.end()
		panic(http.ErrAbortHandler)
	case nowhere:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"errors":["permission denied"]}`)
	default:
		r.Header.Del("X-Vault-Namespace")
		next.ServeHTTP(w, r)
	}
}

// look is a look that has so many answers.
func (h *hurry) look(t *testing.T, s kmsplugin.Session, answers int) (asked []string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.left, h.end, h.seen = answers, cancel, nil
	found, err := s.Versions(ctx)
	require.Len(t, found.All, 1, "what was wrapped before unwraps")
	return h.seen, err
}

// A Vault of whose calls a wrap and an unwrap have the time is served, though one look has not the
// time for all that has to be seen first.
func TestASlowVaultIsTrustedOneLookAfterTheOther(t *testing.T) {
	p := newPlace(t)
	h := &hurry{left: 100}
	p.before(t, h.handle)
	p.config.Namespace = "team"
	s := open(t, p.transit(t))
	for _, asked := range [][]string{{"keys", "encrypt", "decrypt"}, {"keys", "decrypt", "nowhere"}} {
		got, err := h.look(t, s, 2)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "until it was seen")
		require.Equal(t, asked, got)
	}
	got, err := h.look(t, s, 2)
	require.NoError(t, err)
	require.Equal(t, []string{"keys", "nowhere"}, got)
	got, err = h.look(t, s, 1)
	require.NoError(t, err)
	require.Equal(t, []string{"keys"}, got, "what was seen once is not tried again")
}

// What a key has wrapped that is gone opens under no key_id, which says nothing of Vault.
func TestAVaultIsNotTrustedForTheSakeOfAKeyThatIsGone(t *testing.T) {
	p := newPlace(t)
	h := &hurry{left: 100}
	direct := p.transit(t)
	p.before(t, h.handle)
	s := open(t, p.transit(t))
	_, err := h.look(t, s, 2)
	require.Error(t, err)
	first := writer(t, open(t, direct))
	p.later(t)
	p.Delete("k")
	p.CreateKey("k", "")
	require.NotEqual(t, first.KeyID(), writer(t, open(t, direct)).KeyID())
	got, err := h.look(t, s, 3)
	require.NoError(t, err)
	require.Equal(t, []string{"keys", "encrypt", "decrypt"}, got)
}
