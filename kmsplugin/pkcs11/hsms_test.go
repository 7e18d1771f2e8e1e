//go:build cgo

package pkcs11

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"
)

// hsms are several behind one module, which number their objects themselves: the handle of a key of
// one is that of another key of the next.
type hsms struct {
	driver
	ids [][]byte // the CKA_IDs of the keys of all labels
	// next is the HSM that the n-th session is with.
	next func(n int) int

	mu     sync.Mutex
	opened int
	of     map[cryptoki.SessionHandle]int
	says   map[int]uint          // what one answers to whatever it is asked
	hangs  map[int]chan struct{} // what one waits for before it answers
	lacks  map[int]keyID         // a key that one has not
	order  map[int][][]byte      // the keys by number, where that is another one than the others'
	shut   map[int]bool          // one where nobody is logged in, who sees no key
	lags   map[int]time.Duration // how long each call of one takes
	calls  int
	takes  time.Duration // of each call, one after another
	turn   chan struct{}
}

// behind puts so many HSMs in the place of a token, which has keys of another label, too.
func behind(t testing.TB, token *Token, n int) *hsms {
	t.Helper()
	token.load = load
	m, err := load(token.config.Module)
	require.NoError(t, err)
	h := &hsms{driver: m.driver, next: func(opened int) int { return opened % n }, of: map[cryptoki.SessionHandle]int{},
		order: map[int][][]byte{}, shut: map[int]bool{}, lags: map[int]time.Duration{},
		says: map[int]uint{}, hangs: map[int]chan struct{}{}, lacks: map[int]keyID{}, turn: make(chan struct{}, 1)}
	s, err := token.Open(t.Context())
	require.NoError(t, err)
	l := s.(*session).pool.now(want{})
	all, err := l.find([]*cryptoki.Attribute{cryptoki.NewAttribute(cryptoki.CKA_CLASS, cryptoki.CKO_SECRET_KEY)})
	require.NoError(t, err)
	for _, o := range all {
		a, err := o.attributes(cryptoki.CKA_ID)
		require.NoError(t, err)
		h.ids = append(h.ids, a[cryptoki.CKA_ID])
	}
	s.(*session).pool.put(l)
	require.NoError(t, s.Close(t.Context()))
	mine := newModule(m.path, h)
	token.load = func(string) (*module, error) { return mine, nil }
	return h
}

// tokenOfTwoLabels is one with so many versions, and as many of another KEK.
func tokenOfTwoLabels(t testing.TB, versions int) *Token {
	t.Helper()
	token := tokenWithKeys(t, versions)
	other := token.config
	other.Key = "another"
	_, err := newToken(t, other).Create(t.Context())
	require.NoError(t, err)
	for range versions - 1 {
		_, err = newToken(t, other).Rotate(t.Context())
		require.NoError(t, err)
	}
	return token
}

// set changes what they do while they are in use.
func (h *hsms) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// asked is for each call of a session: which HSM answers, and what if it does not do it.
func (h *hsms) asked(s cryptoki.SessionHandle) (hsm int, err error) {
	h.mu.Lock()
	hsm = h.of[s]
	hang, code, takes, lag := h.hangs[hsm], h.says[hsm], h.takes, h.lags[hsm]
	h.calls++
	h.mu.Unlock()
	if hang != nil {
		<-hang
	}
	time.Sleep(lag) // by the clock of the test
	if takes > 0 {
		h.turn <- struct{}{}
		time.Sleep(takes) // by the clock of the test
		<-h.turn
	}
	if code != 0 {
		return hsm, cryptoki.Error(code)
	}
	return hsm, nil
}

// count is how many calls of sessions there were.
func (h *hsms) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}

// number is by what an HSM knows a key.
func (h *hsms) number(hsm int, id []byte) cryptoki.ObjectHandle {
	if order := h.order[hsm]; order != nil {
		return cryptoki.ObjectHandle(1 + slices.IndexFunc(order, func(one []byte) bool { return bytes.Equal(one, id) }))
	}
	at := slices.IndexFunc(h.ids, func(one []byte) bool { return bytes.Equal(one, id) })
	return cryptoki.ObjectHandle(1 + (at+5*hsm)%len(h.ids))
}

// real is the key by which SoftHSM knows what an HSM has under a number.
func (h *hsms) real(s cryptoki.SessionHandle, hsm int, number cryptoki.ObjectHandle) cryptoki.ObjectHandle {
	id := h.ids[(int(number)-1+4*5*len(h.ids)-5*hsm)%len(h.ids)]
	h.mu.Lock()
	if order := h.order[hsm]; order != nil {
		id = order[number-1]
	}
	h.mu.Unlock()
	found, _ := h.driver.find(s, []*cryptoki.Attribute{cryptoki.NewAttribute(cryptoki.CKA_ID, id)})
	if len(found) == 0 {
		return 0
	}
	return found[0]
}

func (h *hsms) OpenSession(slot, flags uint) (cryptoki.SessionHandle, error) {
	s, err := h.driver.OpenSession(slot, flags)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of[s] = h.next(h.opened)
	h.opened++
	return s, err
}

func (h *hsms) GetSessionInfo(s cryptoki.SessionHandle) (cryptoki.SessionInfo, error) {
	if _, err := h.asked(s); err != nil {
		return cryptoki.SessionInfo{}, err
	}
	info, err := h.driver.GetSessionInfo(s)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shut[h.of[s]] {
		info.State = cryptoki.CKS_RO_PUBLIC_SESSION
	}
	return info, err
}

func (h *hsms) find(s cryptoki.SessionHandle, template []*cryptoki.Attribute) (found []cryptoki.ObjectHandle, err error) {
	hsm, err := h.asked(s)
	if err != nil {
		return nil, err
	}
	all, err := h.driver.find(s, template)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shut[hsm] {
		return nil, err
	}
	for _, o := range all {
		a, failed := object{newLine(h.driver, s), o}.attributes(cryptoki.CKA_ID)
		if failed != nil {
			return nil, failed
		}
		if lacks := h.lacks[hsm]; bytes.Equal(a[cryptoki.CKA_ID], lacks[:]) {
			continue
		}
		found = append(found, h.number(hsm, a[cryptoki.CKA_ID]))
	}
	return found, err
}

func (h *hsms) GetAttributeValue(s cryptoki.SessionHandle, o cryptoki.ObjectHandle, a []*cryptoki.Attribute) ([]*cryptoki.Attribute, error) {
	hsm, err := h.asked(s)
	if err != nil {
		return nil, err
	}
	return h.driver.GetAttributeValue(s, h.real(s, hsm, o), a)
}

func (h *hsms) seal(s cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, dek []byte) ([]byte, []byte, error) {
	hsm, err := h.asked(s)
	if err != nil {
		return nil, nil, err
	}
	return h.driver.seal(s, h.real(s, hsm, key), iv, aad, dek)
}

func (h *hsms) open(s cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, ciphertext []byte) ([]byte, error) {
	hsm, err := h.asked(s)
	if err != nil {
		return nil, err
	}
	return h.driver.open(s, h.real(s, hsm, key), iv, aad, ciphertext)
}
