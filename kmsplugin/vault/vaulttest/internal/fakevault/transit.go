package fakevault

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// transit is the engine of keys that never leave it.
type transit struct {
	keys map[string]*key
}

func (*transit) kind() string { return "transit" }

// creates reports whether a request makes a key by encrypting with it, which is a right of its
// own.
func (e *transit) creates(q *request) bool {
	name, encrypts := strings.CutPrefix(q.rest, "encrypt/")
	return encrypts && q.operation == "update" && e.keys[name] == nil
}

func (e *transit) answer(v *Vault, q *request) answer {
	action, name, _ := strings.Cut(q.rest, "/")
	if action == "keys" {
		return e.manage(v, q, name)
	}
	use, known := map[string]func(*key, body) answer{"encrypt": (*key).encrypt, "decrypt": (*key).decrypt, "rewrap": (*key).rewrap}[action]
	switch {
	case !known:
		return unknown()
	case q.operation == "create":
		if !q.body.has("plaintext") {
			return invalid("missing plaintext to encrypt")
		}
		e.keys[name] = newKey(name, "aes256-gcm96", v.now())
	case q.operation != "update":
		return unsupported()
	case action != "encrypt" && q.body.text("ciphertext") == "":
		return invalid("missing ciphertext to decrypt")
	case e.keys[name] == nil:
		return invalid("encryption key not found")
	}
	return use(e.keys[name], q.body)
}

// types are those of keys that there are here.
var types = []string{"aes128-gcm96", "aes256-gcm96", "chacha20-poly1305", "rsa-2048", "ed25519"}

// manage makes, shows, changes and deletes keys.
func (e *transit) manage(v *Vault, q *request, rest string) answer {
	name, action, _ := strings.Cut(rest, "/")
	k := e.keys[name]
	if action == "" {
		switch q.operation {
		case "update":
			return e.create(q, name, v.now())
		case "read":
			if k == nil {
				return missing()
			}
			return ok(k.told())
		case "list":
			return e.list()
		case "delete":
			return e.delete(name)
		}
		return unsupported()
	}
	change, known := map[string]func(*key, body, time.Time) answer{"rotate": (*key).rotate, "config": (*key).configure, "trim": (*key).trim}[action]
	switch {
	case !known:
		return unknown()
	case q.operation != "update":
		return unsupported()
	case k == nil:
		return invalid(map[string]string{"rotate": "key not found", "config": "no existing key named " + name + " could be found", "trim": "invalid key name"}[action])
	}
	return change(k, q.body, v.now())
}

func (e *transit) create(q *request, name string, now time.Time) answer {
	kind := q.body.text("type")
	if kind == "" {
		kind = "aes256-gcm96"
	}
	derived, convergent := q.body.is("derived"), q.body.is("convergent_encryption")
	switch {
	case convergent && !derived:
		return invalid("convergent encryption requires derivation to be enabled")
	case !slices.Contains(types, kind):
		return invalid("unknown key type " + kind)
	case e.keys[name] != nil:
		return ok(e.keys[name].told())
	}
	k := newKey(name, kind, now)
	k.derived, k.convergent = derived, convergent
	k.exportable, k.backup = q.body.is("exportable"), q.body.is("allow_plaintext_backup")
	e.keys[name] = k
	return ok(k.told())
}

func (e *transit) list() answer {
	var names []string
	for name := range e.keys {
		names = append(names, name)
	}
	if names == nil {
		return missing()
	}
	slices.Sort(names)
	return ok(map[string]any{"keys": names})
}

func (e *transit) delete(name string) answer {
	switch k := e.keys[name]; {
	case k == nil:
		return invalid(fmt.Sprintf("error deleting policy %s: could not delete key; not found", name))
	case !k.deletable:
		return invalid(fmt.Sprintf("error deleting policy %s: deletion is not allowed for this key", name))
	}
	delete(e.keys, name)
	return done()
}
