//go:build cgo

package pkcs11

import (
	"sync"
	"sync/atomic"
	"testing"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"
)

// altered is SoftHSM with some of its answers replaced, as other tokens have them.
type altered struct {
	driver
	mu         sync.Mutex
	login      func(pin string) error
	info       func(cryptoki.TokenInfo, error) (cryptoki.TokenInfo, error)
	encrypts   func(real driver, h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, plaintext []byte) (ciphertext, used []byte, err error)
	decrypts   func() error
	opens      func() error
	attributes func([]*cryptoki.Attribute)
	mechanism  error
	draws      error
	hides      func() bool
	fails      error // of what asks the token for its keys
}

// set changes what is altered while it is in use.
func (a *altered) set(change func(*altered)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

func (a *altered) now() (now altered) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return altered{driver: a.driver, login: a.login, info: a.info, encrypts: a.encrypts, decrypts: a.decrypts, opens: a.opens, attributes: a.attributes, mechanism: a.mechanism, draws: a.draws, hides: a.hides, fails: a.fails}
}

func (a *altered) Login(h cryptoki.SessionHandle, user uint, pin string) error {
	if now := a.now(); now.login != nil {
		if err := now.login(pin); err != nil {
			return err
		}
	}
	return a.driver.Login(h, user, pin)
}

func (a *altered) GenerateRandom(h cryptoki.SessionHandle, length int) ([]byte, error) {
	if now := a.now(); now.draws != nil {
		return nil, now.draws
	}
	return a.driver.GenerateRandom(h, length)
}

func (a *altered) GetTokenInfo(slot uint) (cryptoki.TokenInfo, error) {
	info, err := a.driver.GetTokenInfo(slot)
	if now := a.now(); now.info != nil {
		return now.info(info, err)
	}
	return info, err
}

func (a *altered) GetMechanismInfo(slot uint, m []*cryptoki.Mechanism) (cryptoki.MechanismInfo, error) {
	if now := a.now(); now.mechanism != nil {
		return cryptoki.MechanismInfo{}, now.mechanism
	}
	return a.driver.GetMechanismInfo(slot, m)
}

func (a *altered) OpenSession(slot, flags uint) (cryptoki.SessionHandle, error) {
	if now := a.now(); now.opens != nil {
		if err := now.opens(); err != nil {
			return 0, err
		}
	}
	return a.driver.OpenSession(slot, flags)
}

func (a *altered) GetAttributeValue(h cryptoki.SessionHandle, o cryptoki.ObjectHandle, template []*cryptoki.Attribute) ([]*cryptoki.Attribute, error) {
	now := a.now()
	if now.fails != nil {
		return nil, now.fails
	}
	found, err := a.driver.GetAttributeValue(h, o, template)
	if now.attributes != nil && err == nil {
		now.attributes(found)
	}
	return found, err
}

func (a *altered) find(h cryptoki.SessionHandle, template []*cryptoki.Attribute) ([]cryptoki.ObjectHandle, error) {
	now := a.now()
	if now.fails != nil || now.hides != nil && now.hides() {
		return nil, now.fails
	}
	return a.driver.find(h, template)
}

func (a *altered) seal(h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, plaintext []byte) ([]byte, []byte, error) {
	now := a.now()
	if now.fails != nil {
		return nil, nil, now.fails
	}
	if now.encrypts != nil {
		return now.encrypts(a.driver, h, key, iv, aad, plaintext)
	}
	return a.driver.seal(h, key, iv, aad, plaintext)
}

func (a *altered) open(h cryptoki.SessionHandle, key cryptoki.ObjectHandle, iv, aad, ciphertext []byte) ([]byte, error) {
	now := a.now()
	if now.fails != nil {
		return nil, now.fails
	}
	if now.decrypts != nil {
		if err := now.decrypts(); err != nil {
			return nil, err
		}
	}
	return a.driver.open(h, key, iv, aad, ciphertext)
}

// hangOnce is a call that does not return the first time until hang is closed, and closes hangs
// when it begins.
func hangOnce() (call func(), hang, hangs chan struct{}) {
	hang, hangs = make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	return func() {
		if first.CompareAndSwap(false, true) {
			close(hangs)
			<-hang
		}
	}, hang, hangs
}

// alter puts an altered module in the place of a token's.
func alter(t testing.TB, token *Token) *altered {
	t.Helper()
	m, err := load(token.config.Module)
	require.NoError(t, err)
	a := &altered{driver: m.driver}
	mine := newModule(m.path, a)
	token.load = func(string) (*module, error) { return mine, nil }
	return a
}
