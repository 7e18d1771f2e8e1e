//go:build cgo

package pkcs11

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// cluster is HSMs that are one to its clients, and one of them is sick: it tells what it knows, and
// neither encrypts nor decrypts.
type cluster struct {
	driver
	goes func(cryptoki.SessionHandle) bool // whether an operation goes to the sick one
	says atomic.Uint64                     // what that answers, zero while it is well
	lost atomic.Pointer[keyID]             // a key that was not copied to it
	dumb atomic.Bool                       // it does not tell what it knows, either
	mu   sync.Mutex
	of   map[cryptoki.SessionHandle]int // which HSM a session is with
}

func clusterOf(t testing.TB, token *Token) *cluster {
	t.Helper()
	m, err := load(token.config.Module)
	require.NoError(t, err)
	c := &cluster{driver: m.driver, of: map[cryptoki.SessionHandle]int{}}
	mine := newModule(m.path, c)
	token.load = func(string) (*module, error) { return mine, nil }
	return c
}

// ways are how client libraries choose the HSM of an operation.
func (c *cluster) ways() map[string]func(cryptoki.SessionHandle) bool {
	var n atomic.Int64
	return map[string]func(cryptoki.SessionHandle) bool{
		"three in turn":   func(cryptoki.SessionHandle) bool { return n.Add(1)%3 == 0 },
		"two in turn":     func(cryptoki.SessionHandle) bool { return n.Add(1)%2 == 0 },
		"each at random":  func(cryptoki.SessionHandle) bool { return rand.IntN(3) == 0 },
		"by sessions":     func(h cryptoki.SessionHandle) bool { return c.with(h)%2 == 0 },
		"mostly the sick": func(cryptoki.SessionHandle) bool { return rand.IntN(4) > 0 },
	}
}

func (c *cluster) with(h cryptoki.SessionHandle) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[h]
}

func (c *cluster) OpenSession(slot, flags uint) (cryptoki.SessionHandle, error) {
	h, err := c.driver.OpenSession(slot, flags)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[h] = len(c.of)
	return h, err
}

func (c *cluster) fails(h cryptoki.SessionHandle) error {
	if code := c.says.Load(); code != 0 && c.goes(h) {
		return cryptoki.Error(code)
	}
	return nil
}

func (c *cluster) seal(h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, dek []byte) ([]byte, []byte, error) {
	if err := c.fails(h); err != nil {
		return nil, nil, err
	}
	return c.driver.seal(h, key, iv, aad, dek)
}

func (c *cluster) open(h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, ciphertext []byte) ([]byte, error) {
	if err := c.fails(h); err != nil {
		return nil, err
	}
	return c.driver.open(h, key, iv, aad, ciphertext)
}

func (c *cluster) find(h cryptoki.SessionHandle, template []*cryptoki.Attribute) ([]cryptoki.ObjectHandle, error) {
	if c.dumb.Load() && c.goes(h) {
		return nil, cryptoki.Error(cryptoki.CKR_DEVICE_ERROR)
	}
	all, err := c.driver.find(h, template)
	if lost := c.lost.Load(); lost != nil && c.goes(h) {
		all = slices.DeleteFunc(all, func(o cryptoki.ObjectHandle) bool {
			a, err := object{newLine(c.driver, h), o}.attributes(cryptoki.CKA_ID)
			return err == nil && bytes.Equal(a[cryptoki.CKA_ID], lost[:])
		})
	}
	return all, err
}

func TestAGoodCiphertextIsNotDamagedWhileOneHSMOfSeveralIsSick(t *testing.T) {
	token, _ := tokenWithKey(t)
	c := clusterOf(t, token)
	s, v := opened(t, token)
	ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.NoError(t, err)
	for how, goes := range c.ways() {
		c.goes = goes
		for _, code := range []uint{cryptoki.CKR_DEVICE_ERROR, cryptoki.CKR_KEY_HANDLE_INVALID, cryptoki.CKR_VENDOR_DEFINED + 1} {
			c.says.Store(uint64(code))
			for range 300 {
				dek, err := s.Unwrap(t.Context(), v, ct, nil)
				if err != nil {
					require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
					require.NotErrorIs(t, err, kmsplugin.ErrInvalid, "%s: %x", how, code)
					continue
				}
				require.Equal(t, "dek", string(dek))
			}
		}
		c.says.Store(0)
	}
	require.False(t, s.isOver())
}

// One that has no better answer to a ciphertext answers the same when it is sick.
func TestAGoodCiphertextOpensWhileHSMsTakeTurnsOfWhichOneFails(t *testing.T) {
	token, _ := tokenWithKey(t)
	c := clusterOf(t, token)
	s, v := opened(t, token)
	ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.NoError(t, err)
	for _, how := range []string{"three in turn", "two in turn", "by sessions"} {
		c.goes = c.ways()[how]
		for _, code := range []uint{cryptoki.CKR_GENERAL_ERROR, cryptoki.CKR_FUNCTION_FAILED} {
			c.says.Store(uint64(code))
			for range 100 {
				_, err := s.Unwrap(t.Context(), v, ct, nil)
				require.NotErrorIs(t, err, kmsplugin.ErrInvalid, "%s: %x", how, code)
			}
		}
		c.says.Store(0)
	}
}

func TestAKeyThatOneHSMOfSeveralHasNotIsNotGone(t *testing.T) {
	token := tokenWithKeys(t, 2)
	unhurried(token)
	c := clusterOf(t, token)
	var n atomic.Int64
	c.goes = func(cryptoki.SessionHandle) bool { return n.Add(1)%3 != 0 } // two of three have it not
	s, v := opened(t, token)
	ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.NoError(t, err)
	id, _ := parseKeyID(v.Lineage)
	c.lost.Store(&id)
	for range 20 {
		found, err := s.Versions(t.Context())
		if err == nil {
			require.Contains(t, found.All, v)
		}
		s.keys.Store(&ring{})
		_, err = s.Unwrap(t.Context(), v, ct, nil)
		require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
	}
	c.goes = func(cryptoki.SessionHandle) bool { return true }
	s.keys.Store(&ring{})
	_, err = s.Unwrap(t.Context(), v, ct, nil)
	require.ErrorIs(t, err, kmsplugin.ErrUnknownKey, "none of them has it")
}

// What a token answers to a ciphertext that does not open need not be about it.
func TestOnlyAnAnswerAboutTheCiphertextSaysThatItIsDamaged(t *testing.T) {
	token, _ := tokenWithKey(t)
	n := numberTheKeys(t, token, 0)
	s, v := opened(t, token)
	ct, _, err := s.Wrap(t.Context(), v, []byte("dek"), nil)
	require.NoError(t, err)
	for code, class := range map[uint]error{
		cryptoki.CKR_ENCRYPTED_DATA_INVALID:   kmsplugin.ErrInvalid,
		cryptoki.CKR_ENCRYPTED_DATA_LEN_RANGE: kmsplugin.ErrInvalid,
		codeDoesNotOpen:                       kmsplugin.ErrInvalid,
		cryptoki.CKR_GENERAL_ERROR:            kmsplugin.ErrInvalid,
		cryptoki.CKR_FUNCTION_FAILED:          kmsplugin.ErrInvalid,
		cryptoki.CKR_DEVICE_ERROR:             kmsplugin.ErrUnavailable,
		cryptoki.CKR_KEY_HANDLE_INVALID:       kmsplugin.ErrUnavailable,
		cryptoki.CKR_OPERATION_ACTIVE:         kmsplugin.ErrUnavailable,
		cryptoki.CKR_VENDOR_DEFINED + 3:       kmsplugin.ErrUnavailable,
	} {
		n.damaged = code
		_, err := s.Unwrap(t.Context(), v, damagedOf(ct), nil)
		require.ErrorIs(t, err, class, "%x", code)
		if class != kmsplugin.ErrInvalid {
			require.NotErrorIs(t, err, kmsplugin.ErrInvalid, "%x", code)
		}
	}
}

// hasNot has every other session be with an HSM that has not got a version, from now on.
func (c *cluster) hasNot(v kmsplugin.Version) {
	c.goes = func(h cryptoki.SessionHandle) bool { return c.with(h)%2 == 1 }
	id, _ := parseKeyID(v.Lineage)
	c.lost.Store(&id)
}

// inCluster is a token with two versions, which opens so many sessions, and what is wrapped under the
// older one.
func inCluster(t *testing.T, sessions int) (token *Token, c *cluster, old kmsplugin.Version, ct []byte) {
	conf := newConfig(t)
	conf.Sessions = sessions
	token = newToken(t, conf)
	for _, change := range []func(context.Context) (KeyInfo, error){token.Create, token.Rotate} {
		_, err := change(t.Context())
		require.NoError(t, err)
	}
	c = clusterOf(t, token)
	c.goes = func(cryptoki.SessionHandle) bool { return false }
	s, err := token.Open(t.Context())
	require.NoError(t, err)
	found, err := s.Versions(t.Context())
	require.NoError(t, err)
	ct, _, err = s.Wrap(t.Context(), found.All[0], []byte("dek"), nil)
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	return token, c, found.All[0], ct
}

func TestAKeyThatOneSessionDoesNotSeeIsSeenByAnother(t *testing.T) {
	for _, sessions := range []int{2, 3, 8} {
		t.Run(fmt.Sprint(sessions), func(t *testing.T) {
			token, c, old, ct := inCluster(t, sessions)
			c.hasNot(old)
			unhurried(token)
			s, _ := opened(t, token)
			for range 20 {
				found, err := s.Versions(t.Context())
				require.NoError(t, err)
				require.Contains(t, found.All, old)
				require.False(t, found.Partial)
				s.keys.Store(&ring{})
				dek, err := s.Unwrap(t.Context(), old, ct, nil)
				require.NoError(t, err)
				require.Equal(t, "dek", string(dek))
			}
		})
	}
}

// What the others tell is enough to go on with, and not to say that anything is gone.
func TestAnHSMThatDoesNotTellWhatItHasStopsNobodyElse(t *testing.T) {
	token, c, old, ct := inCluster(t, 8)
	s, _ := opened(t, token)
	all := takeThose(t, s, func(cryptoki.SessionHandle) bool { return true })
	for _, l := range all {
		s.pool.put(l)
	}
	dumb := all[3].handle // which is exchanged for another one meanwhile
	c.goes = func(h cryptoki.SessionHandle) bool { return h == dumb }
	c.dumb.Store(true)
	s.keys.Store(&ring{})
	_, err := s.Unwrap(t.Context(), newKeyID(7, time.Now()).version(), ct, nil)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
	found, err := s.Versions(t.Context())
	require.NoError(t, err)
	require.Contains(t, found.All, old)
}

// One session may be with the HSM that has it not.
func TestWithOneSessionNoKeyIsSaidToBeGone(t *testing.T) {
	token, c, old, ct := inCluster(t, 1)
	s, _ := opened(t, token)
	c.goes = func(cryptoki.SessionHandle) bool { return true }
	id, _ := parseKeyID(old.Lineage)
	c.lost.Store(&id)
	found, err := s.Versions(t.Context())
	require.NoError(t, err)
	require.True(t, found.Partial)
	require.Contains(t, found.All, old, "it was there")
	_, err = s.Unwrap(t.Context(), old, ct, nil)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)

	again, err := token.Open(t.Context())
	require.NoError(t, err)
	found, err = again.Versions(t.Context())
	require.NoError(t, err)
	require.NotContains(t, found.All, old)
	_, err = again.Unwrap(t.Context(), old, ct, nil)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
	require.NoError(t, again.Close(t.Context()))
}

// waits is a clock by which sessions that are in use are waited for as long as it says, and by which
// all takes as long as it says.
type waits struct {
	patient
	busy time.Duration
	took time.Duration
}

func (p *waits) Since(time.Time) time.Duration { return p.took }

// unhurried has a token looked at to the end, however busy the machine is.
func unhurried(token *Token) { token.config.Clock = &waits{busy: time.Hour} }

func (p *waits) NewTimer(d time.Duration) clock.Timer {
	if d == busy {
		d = p.busy
	}
	return p.patient.NewTimer(d)
}

// takeThose takes the sessions of an HSM, as callers do.
func takeThose(t *testing.T, s *session, of func(cryptoki.SessionHandle) bool) (taken []*line) {
	had := map[*line]bool{}
	for range s.pool.size() {
		l, err := s.pool.wait(t.Context(), want{had: had})
		require.NoError(t, err)
		had[l] = true
	}
	for l := range had {
		if of(l.handle) {
			taken = append(taken, l)
		} else {
			s.pool.put(l)
		}
	}
	return taken
}

func TestALookWaitsForSessionsThatAreInUse(t *testing.T) {
	token, c, old, ct := inCluster(t, 8)
	token.config.Clock = &waits{busy: time.Hour}
	s, _ := opened(t, token)
	c.hasNot(old)
	taken := takeThose(t, s, func(h cryptoki.SessionHandle) bool { return !c.goes(h) })
	require.Len(t, taken, 4)
	s.keys.Store(&ring{})
	var looking sync.WaitGroup
	looking.Go(func() {
		if dek, err := s.Unwrap(t.Context(), old, ct, nil); err != nil || string(dek) != "dek" {
			t.Errorf("%q, %v", dek, err)
		}
	})
	for _, l := range taken {
		s.pool.put(l)
	}
	looking.Wait()
}

func TestAKeyIsNotSaidToBeGoneWhileSessionsAreInUseThatMaySeeIt(t *testing.T) {
	token, c, old, ct := inCluster(t, 8)
	token.config.Clock = &waits{}
	s, _ := opened(t, token)
	c.hasNot(old)
	taken := takeThose(t, s, func(h cryptoki.SessionHandle) bool { return !c.goes(h) })
	found, err := s.Versions(t.Context())
	require.NoError(t, err)
	require.Contains(t, found.All, old)
	s.keys.Store(&ring{})
	_, err = s.Unwrap(t.Context(), old, ct, nil)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
	for _, l := range taken {
		s.pool.put(l)
	}
}
