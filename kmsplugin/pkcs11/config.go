//go:build cgo

package pkcs11

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/kmsplugin"
)

var (
	// ErrMistake is that something cannot work until somebody changes the flags, a file or
	// the keys on the token; the error says what. It is never an outage.
	ErrMistake = errors.New("set up wrongly")
	// ErrNoKey is that the token is there, and has no key of the label.
	ErrNoKey = errors.New("no such key on the token")
)

// Config names a token and the keys on it.
type Config struct {
	// Module is the path of the vendor's PKCS#11 module, a shared library, from the root on.
	Module string
	// Token is the label of the token, and Serial its serial number: one of them will do,
	// unless two tokens have the label.
	Token, Serial string
	// PINFile has the PIN of the token's user, and nothing else but an end of line. Others can
	// not read it.
	PINFile string
	// Key is the CKA_LABEL of the keys, all of which are versions of one KEK.
	Key string
	// Sessions is how many calls the token does at once: 8. While it has no more for this
	// process, it is fewer.
	Sessions int
	// AllowExtractable takes keys, too, that can be read from the token, or used without a PIN.
	AllowExtractable bool
	// Clock is the system's unless a test hands another in.
	Clock clock.Clock
}

// maxSessions bounds [Config.Sessions]: each is a thread while a call runs.
const maxSessions = 1024

func (c Config) check() error {
	for _, required := range []struct{ value, what string }{
		{c.Module, "the path of the PKCS#11 module"},
		{cmp.Or(c.Token, c.Serial), "the label of the token, or its serial number"},
		{c.PINFile, "the file with the PIN"},
		{c.Key, "the label of the key"},
	} {
		if required.value == "" {
			return fmt.Errorf("%w: %s is not given", ErrMistake, required.what)
		}
	}
	if !filepath.IsAbs(c.Module) {
		return fmt.Errorf("%w: module %q is no path from the root on, and would be looked for wherever the environment says: give it in full", ErrMistake, c.Module)
	}
	if len(c.Token) > 32 || len(c.Serial) > 16 {
		return fmt.Errorf("%w: the label of a token has at most 32 bytes, and its serial number 16: these have %d and %d", ErrMistake, len(c.Token), len(c.Serial))
	}
	if c.Sessions < 1 || c.Sessions > maxSessions {
		return fmt.Errorf("%w: %d sessions: from 1 to %d, as many calls as the token does at once", ErrMistake, c.Sessions, maxSessions)
	}
	return nil
}

// A Token has the keys. It is safe for concurrent use.
type Token struct {
	config Config
	load   func(path string) (*module, error)
	pin    pins
	draws  atomic.Bool // random bytes, before a login
	trust  trust
	// sessions are those that are not closed.
	sessions siblings
}

var _ kmsplugin.Backend = (*Token)(nil)

// New checks the Config, and touches nothing yet.
func New(c Config) (*Token, error) {
	c.Sessions = cmp.Or(c.Sessions, 8)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("pkcs11: %w", err)
	}
	return &Token{config: c, load: load}, nil
}

// Keeping is how a [kmsplugin.Keeper] keeps the token: with as many calls at once as there are
// sessions, as many again that never return, and one that is told so. It is not opened anew when the
// PIN file changes, which would try no PIN: who is logged in stays so, and each login reads the file.
func (t *Token) Keeping() kmsplugin.Config {
	return kmsplugin.Config{Concurrency: 2*t.config.Sessions + 1}
}

// String is for logs and errors.
func (t *Token) String() string {
	if t.config.Token == "" {
		return fmt.Sprintf("token with the serial number %q", t.config.Serial)
	}
	return fmt.Sprintf("token %q", t.config.Token)
}
