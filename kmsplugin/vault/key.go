package vault

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// kind is that of all versions here, of Vault and of OpenBao.
const kind = "vault-transit"

// A key is what Vault tells of one. It is read-only.
type key struct {
	latest, minDecrypt, minEncrypt, minAvailable int
	// made is when each version was, in seconds; what was trimmed or archived is missing.
	made map[int]int64
	// leaves is whether who has the right may take it out of Vault.
	leaves bool
}

// keyAnswer is that of a read of a key.
type keyAnswer struct {
	Data struct {
		Type       string                     `json:"type"`
		Derived    bool                       `json:"derived"`
		Latest     int                        `json:"latest_version"`
		MinDecrypt int                        `json:"min_decryption_version"`
		MinEncrypt int                        `json:"min_encryption_version"`
		Available  int                        `json:"min_available_version"`
		Exportable bool                       `json:"exportable"`
		Backup     bool                       `json:"allow_plaintext_backup"`
		Keys       map[string]json.RawMessage `json:"keys"`
	} `json:"data"`
}

// key is the key, if it is one to wrap DEKs with.
func (a keyAnswer) key() (*key, error) {
	d := a.Data
	const remedy = "make one with \"vault write -f MOUNT/keys/NAME type=aes256-gcm96\""
	switch {
	case d.Type == "": // nor is it one of a kind that would end the plugin at its start
		return nil, fmt.Errorf("%w: an answer without a type of the key: is this Vault?", kmsplugin.ErrUnavailable)
	case d.Derived:
		return nil, fmt.Errorf("%w: %w: the key derives others by a context, and a convergent one wraps the same DEK to the same bytes: take a key without derivation: %s", kmsplugin.ErrKeyDisabled, ErrMistake, remedy)
	case !slices.Contains([]string{"aes128-gcm96", "aes256-gcm96", "chacha20-poly1305"}, d.Type):
		return nil, fmt.Errorf("%w: %w: the key is of type %.32q, which cannot bind a DEK to its key_id: take aes256-gcm96, aes128-gcm96 or chacha20-poly1305: %s", kmsplugin.ErrKeyDisabled, ErrMistake, d.Type, remedy)
	}
	k := &key{latest: d.Latest, minDecrypt: d.MinDecrypt, minEncrypt: d.MinEncrypt, minAvailable: max(d.Available, 1), made: map[int]int64{}, leaves: d.Exportable || d.Backup}
	for label, raw := range d.Keys {
		n, err := strconv.Atoi(label)
		seconds, numeric := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || numeric != nil || n < 1 || seconds < 1 {
			return nil, fmt.Errorf("%w: it tells no time at which version %.32q of the key was made: rotate the key, if its first versions are of a very old Vault", kmsplugin.ErrUnavailable, label)
		}
		k.made[n] = seconds
	}
	if _, ok := k.made[k.latest]; !ok {
		return nil, fmt.Errorf("%w: the key's latest version is %d, and it is not among its %d versions: is this Vault?", kmsplugin.ErrUnavailable, k.latest, len(k.made))
	}
	return k, nil
}

// goesBack reports whether a key is an older state of what was seen before: of a standby that
// lags, or of a Vault that was set back. The same key has fewer versions then, or one of a
// number was made earlier, as before a restore; another one, deleted by now, was made earlier.
func (k *key) goesBack(before *key) bool {
	if before == nil {
		return false
	}
	same := false
	for n, at := range before.made {
		switch made, has := k.made[n]; {
		case has && made < at:
			return true
		case has && made == at:
			same = true
		}
	}
	if same {
		return k.latest < before.latest
	}
	return k.made[k.latest] < before.made[before.latest]
}

// withheld is that versions are there and do not unwrap: Vault tells nothing of them, not even when
// they were made. What was trimmed is below the minimum that is available.
func (k *key) withheld(c Config) error {
	if k.minDecrypt <= k.minAvailable {
		return nil
	}
	return fmt.Errorf("%w: min_decryption_version is %d, and versions %d to %d of %s/keys/%s do not unwrap, and are not lost: \"vault write %s/keys/%s/config min_decryption_version=%d\" brings them back",
		kmsplugin.ErrKeyDisabled, k.minDecrypt, k.minAvailable, k.minDecrypt-1, c.Mount, c.Key, c.Mount, c.Key, k.minAvailable)
}

// versions are those that unwrap, the oldest first.
func (c Config) versions(k *key) kmsplugin.Versions {
	found := kmsplugin.Versions{Withheld: k.withheld(c)}
	for _, n := range slices.Sorted(maps.Keys(k.made)) {
		if n < k.minDecrypt || n > k.latest {
			continue
		}
		if n < k.minEncrypt {
			found.Oldest++
		}
		found.All = append(found.All, c.version(n, k.made[n]))
	}
	found.Writes = len(found.All) - 1
	return found
}

// version is version n of the key, as it was made at a time.
func (c Config) version(n int, made int64) kmsplugin.Version {
	var lineage []byte
	for _, part := range []string{c.Namespace, c.Mount, c.Key} {
		lineage = binary.BigEndian.AppendUint64(lineage, uint64(len(part)))
		lineage = append(lineage, part...)
	}
	lineage = binary.BigEndian.AppendUint64(lineage, uint64(made))
	return kmsplugin.Version{Kind: kind, Lineage: lineage, Label: strconv.Itoa(n), Created: time.Unix(made, 0)}
}

// shortest is a nonce, one byte and a tag: no ciphertext has less.
const shortest = 12 + 1 + 16

// versionOf is the version that made a ciphertext, as it stands before it: "vault:v7:...". There
// is one spelling of each ciphertext, and no other is taken.
func versionOf(ciphertext []byte) (n int, err error) {
	rest, ok := strings.CutPrefix(string(ciphertext), "vault:v")
	label, encoded, both := strings.Cut(rest, ":")
	n, notNumber := strconv.Atoi(label)
	if !ok || !both || notNumber != nil || n < 1 || strconv.Itoa(n) != label {
		return 0, fmt.Errorf("it does not begin with \"vault:v\", a version and \":\"")
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || base64.StdEncoding.EncodeToString(raw) != encoded {
		return 0, fmt.Errorf("what follows its version is not base64")
	}
	if len(raw) < shortest {
		return 0, fmt.Errorf("it has %d bytes, fewer than any has", len(raw))
	}
	return n, nil
}
