package fakevault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// key is one of Transit, with all its versions. Of whatever type it says it is, it wraps with
// AES-GCM: nobody sees the difference.
type key struct {
	name, kind          string
	derived, convergent bool
	exportable, backup  bool
	deletable           bool
	versions            map[int]keyVersion
	latest              int
	decrypts, encrypts  int // min_decryption_version, min_encryption_version
	available           int // min_available_version
}

type keyVersion struct {
	secret  []byte
	created time.Time
}

func newKey(name, kind string, now time.Time) *key {
	k := &key{name: name, kind: kind, versions: map[int]keyVersion{}, decrypts: 1}
	k.rotate(body{}, now)
	return k
}

func (k *key) rotate(_ body, now time.Time) answer {
	secret := make([]byte, 32)
	rand.Read(secret)
	k.latest++
	k.versions[k.latest] = keyVersion{secret, now}
	return ok(k.told())
}

// authenticates reports whether associated data can be bound to what it wraps.
func (k *key) authenticates() bool { return !k.isRSA() && k.kind != "ed25519" }

func (k *key) isRSA() bool { return strings.HasPrefix(k.kind, "rsa-") }

func (k *key) told() map[string]any {
	data := map[string]any{
		"name": k.name, "type": k.kind, "derived": k.derived, "deletion_allowed": k.deletable,
		"min_available_version": k.available, "min_decryption_version": k.decrypts, "min_encryption_version": k.encrypts,
		"latest_version": k.latest, "exportable": k.exportable, "allow_plaintext_backup": k.backup,
		"supports_encryption": k.kind != "ed25519", "supports_decryption": k.kind != "ed25519",
		"supports_signing": !k.authenticates(), "supports_derivation": !k.isRSA(),
		"auto_rotate_period": 0, "imported_key": false,
	}
	if k.derived {
		data["kdf"] = "hkdf_sha256"
		data["convergent_encryption"] = k.convergent
		if k.convergent {
			data["convergent_encryption_version"] = -1
		}
	}
	all := map[string]any{}
	for number, version := range k.versions {
		if number < k.decrypts {
			continue // which is there, and comes back with a lower minimum
		}
		if k.authenticates() {
			all[strconv.Itoa(number)] = version.created.Unix()
			continue
		}
		all[strconv.Itoa(number)] = map[string]any{
			"name": k.kind, "public_key": "none: this is a fake", "certificate_chain": "", "hybrid_public_key": "",
			"creation_time": stamp(version.created),
		}
	}
	data["keys"] = all
	return data
}

// configure is a change of what may be done with the key.
func (k *key) configure(b body, _ time.Time) answer {
	decrypts, encrypts := k.decrypts, k.encrypts
	var err error
	var warnings []string
	if b.has("min_decryption_version") {
		if decrypts, err = b.number("min_decryption_version"); err != nil {
			return invalid(err.Error())
		}
		if decrypts == 0 {
			decrypts = 1
			warnings = []string{"since Vault 0.3, transit key numbering starts at 1; forcing minimum to 1"}
		}
	}
	if b.has("min_encryption_version") {
		if encrypts, err = b.number("min_encryption_version"); err != nil {
			return invalid(err.Error())
		}
	}
	if why := k.mayHave(decrypts, encrypts); why != "" {
		return invalid(why)
	}
	k.decrypts, k.encrypts = decrypts, encrypts
	if b.has("deletion_allowed") {
		k.deletable = b.is("deletion_allowed")
	}
	return answer{data: k.told(), warnings: warnings}
}

// mayHave says why these are no versions to decrypt and encrypt from, if they are not.
func (k *key) mayHave(decrypts, encrypts int) string {
	switch {
	case decrypts < 0:
		return "min decryption version cannot be negative"
	case decrypts > k.latest:
		return fmt.Sprintf("cannot set min decryption version of %d, latest key version is %d", decrypts, k.latest)
	case encrypts < 0:
		return "min encryption version cannot be negative"
	case encrypts > k.latest:
		return fmt.Sprintf("cannot set min encryption version of %d, latest key version is %d", encrypts, k.latest)
	case encrypts > 0 && encrypts < decrypts:
		return fmt.Sprintf("cannot set min encryption/decryption values; min encryption version of %d must be greater than or equal to min decryption version of %d", encrypts, decrypts)
	case k.available > encrypts:
		return "min encryption version should not be less than min available version"
	case k.available > decrypts:
		return "min decryption version should not be less then min available version"
	}
	return ""
}

// trim forgets the versions before one.
func (k *key) trim(b body, _ time.Time) answer {
	from, err := b.number("min_available_version")
	switch {
	case err != nil:
		return invalid(err.Error())
	case !b.has("min_available_version"):
		return invalid("missing min_available_version")
	case from < k.available:
		return invalid("minimum available version cannot be decremented")
	case k.encrypts == 0:
		return invalid("minimum available version cannot be set when minimum encryption version is not set")
	case from > k.encrypts:
		return invalid("minimum available version cannot be greater than minmum encryption version")
	case from > k.decrypts:
		return invalid("minimum available version cannot be greater than minimum decryption version")
	case from == 0:
		return invalid("minimum available version should be positive")
	}
	k.available = from
	for number := range k.versions {
		if number < from {
			delete(k.versions, number)
		}
	}
	return ok(k.told())
}

func (v keyVersion) aead() cipher.AEAD {
	block, err := aes.NewCipher(v.secret)
	if err != nil {
		panic(err) // the secret is of 32 bytes
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return aead
}
