// Package fakevault is what a KMS plugin sees of HashiCorp Vault, as an HTTP handler in
// memory: Transit, tokens, policies, response wrapping, seal and unseal, and the ways to
// log in. It answers as the real one does, which the tests of vaulttest hold it to by
// recorded answers. It is for tests, and keeps nothing secret from them.
package fakevault

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Vault is a Vault that is initialised and unsealed. It may be used by many goroutines: one
// request is answered at a time.
type Vault struct {
	// Token is the root token, UnsealKey the one key that unseals it.
	Token, UnsealKey string

	mu       sync.Mutex
	ahead    time.Duration // of the system's clock
	sealed   bool
	id       string // of the cluster
	policies map[string]policy
	tokens   map[string]*token
	secrets  map[string]engine // by the path of the mount, which ends in a slash
	auths    map[string]engine
}

// engine answers requests below a mount.
type engine interface {
	kind() string
	answer(*Vault, *request) answer
}

// engines are made when one is mounted.
var engines = map[string]func() engine{
	"transit":    func() engine { return &transit{keys: map[string]*key{}} },
	"approle":    func() engine { return &approle{roles: map[string]*appRole{}} },
	"kubernetes": func() engine { return &kubernetes{roles: map[string]*kubernetesRole{}} },
	"jwt":        func() engine { return &jwt{roles: map[string]*jwtRole{}} },
	"cert":       func() engine { return &cert{roles: map[string]*certRole{}} },
}

// New is a Vault with a root token, and nothing mounted.
func New() *Vault {
	v := &Vault{
		UnsealKey: random(),
		id:        uuid(),
		policies:  map[string]policy{"default": mustParse(defaultPolicy)},
		tokens:    map[string]*token{},
		secrets:   map[string]engine{},
		auths:     map[string]engine{},
	}
	v.auths["token/"] = tokens{}
	root := v.issue(&token{path: "auth/token/root", display: "root", policies: []string{"root"}, orphan: true})
	v.Token = root.id
	return v
}

// Advance has the clock of leases go ahead.
func (v *Vault) Advance(by time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ahead += by
}

func (v *Vault) now() time.Time { return time.Now().Add(v.ahead) }

// random is text that nobody can guess.
func random() string { return rand.Text() }

// uuid is random in the form in which Vault has identifiers.
func uuid() string {
	var b [16]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// mounted is the engine that a path is of, and the rest of the path.
func mounted(mounts map[string]engine, path string) (e engine, rest string) {
	for at, candidate := range mounts {
		if below, ok := strings.CutPrefix(path, at); ok && (e == nil || len(below) < len(rest)) {
			e, rest = candidate, below
		}
	}
	return e, rest
}
