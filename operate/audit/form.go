package audit

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/stored"
)

// The kinds of stored objects beside those of the encrypting providers, which
// are called as in [config].
const (
	// Plaintext begins as JSON, Kubernetes' protobuf or CBOR does.
	Plaintext config.Kind = "plaintext"
	// Unknown begins with "k8s:enc:" and a form that nothing here knows.
	Unknown config.Kind = "unknown prefix"
	// Undecodable can be opened with no key: it is cut off, or neither
	// encrypted nor plaintext.
	Undecodable config.Kind = "undecodable"
)

// DEKSource says what a KMS plugin keeps sealed for a value.
type DEKSource string

// The sources. They are told apart in the stored object (KEP-3299).
const (
	DEK  DEKSource = "dek"  // an AES-GCM key used as it is: KMS v1, and atrest's mode counter
	Seed DEKSource = "seed" // expanded into a key for each value: kube-apiserver since 1.29, and atrest's mode seed
)

// Form is how a value is stored, as far as its bytes tell without any key.
type Form struct {
	Kind config.Kind `json:"kind"`
	// Name is that of the key or the KMS provider. A key's name may contain ':',
	// and then is cut at the first one unless it is among the given [Names].
	Name string `json:"name,omitempty"`
	// KeyIDHash is [envelope.HashKeyID] of the key_id, for KMS v2.
	KeyIDHash string `json:"keyIDHash,omitempty"`
	// KeyID is the key_id itself, if it was asked for.
	KeyID string `json:"keyID,omitempty"`
	// DEKSource is set for KMS.
	DEKSource DEKSource `json:"dekSource,omitempty"`
	// Begins is the kind that an [Undecodable] value begins as, if it does: all
	// that is left to tell whose key it could need.
	Begins config.Kind `json:"begins,omitempty"`
}

// String names kind, name and key_id in one line.
func (f Form) String() string {
	text := string(f.Kind)
	if f.Begins != "" {
		text += " " + string(f.Begins)
	}
	if f.Name != "" {
		text += fmt.Sprintf(" %q", f.Name)
	}
	if f.KeyIDHash != "" {
		text += " key_id " + f.KeyIDHash
	}
	return text
}

// Names are names of keys and KMS providers, by kind, that stored values are
// expected to have. They matter for names that contain ':' only.
type Names map[config.Kind][]string

// NamesIn are all names of a configuration.
func NamesIn(c *config.Configuration) Names {
	names := Names{}
	for _, p := range c.Providers() {
		names[p.Kind()] = append(names[p.Kind()], namesOf(p)...)
	}
	return names
}

// namesOf are the names under which a provider's values are stored.
func namesOf(p *config.Provider) []string {
	if name := p.KMS().Name; name != "" {
		return []string{name}
	}
	var names []string
	for _, k := range p.Keys() {
		names = append(names, k.Name)
	}
	return names
}

// Inspection is what the bytes of one value tell.
type Inspection struct {
	Form Form
	// KeyID is the key_id of KMS v2, as it is stored.
	KeyID string
	// WrappedDEK identifies the DEK or seed among all of its KMS provider: it is
	// sealed, and not secret. Empty for all but KMS.
	WrappedDEK []byte
	// Problem is why the form is [Unknown] or [Undecodable], else nil.
	Problem error
}

// Inspect tells how a value is stored. names may be nil.
func Inspect(value []byte, names Names) Inspection {
	for _, f := range stored.Formats {
		if rest, ok := bytes.CutPrefix(value, []byte(f.Prefix)); ok {
			return inspectEncrypted(f, rest, names)
		}
	}
	if stored.IsEncrypted(value) {
		return broken(Unknown, fmt.Errorf("begins with %q, which no known provider writes", beginning(value)))
	}
	if !isSerialized(value) {
		return broken(Undecodable, errors.New("is neither encrypted nor JSON, protobuf or CBOR of Kubernetes"))
	}
	return Inspection{Form: Form{Kind: Plaintext}}
}

func broken(kind config.Kind, why error) Inspection {
	return Inspection{Form: Form{Kind: kind}, Problem: why}
}

// beginning is a form's name of an unknown prefix, without what may follow it.
func beginning(value []byte) string {
	const most = 32
	head := value[:min(len(value), most)]
	if parts := bytes.SplitAfterN(head, []byte(":"), 5); len(parts) == 5 {
		head = head[:len(head)-len(parts[4])]
	}
	return strings.ToValidUTF8(string(head), "?")
}

// The beginnings of what apiservers serialize objects into.
const (
	asJSON     = "{"
	asProtobuf = "k8s\x00"      // k8s.io/apimachinery
	asCBOR     = "\xd9\xd9\xf7" // RFC 8949, 3.4.6: the self-described CBOR tag
)

func isSerialized(value []byte) bool {
	return slices.ContainsFunc([]string{asJSON, asProtobuf, asCBOR}, func(magic string) bool { return bytes.HasPrefix(value, []byte(magic)) })
}

// isObject is for what another key may have made up: one value of 65,536 that it opens begins as JSON, which has
// but one character to begin with.
func isObject(value []byte) bool {
	return isSerialized(value) && (!bytes.HasPrefix(value, []byte(asJSON)) || json.Valid(value))
}

func inspectEncrypted(f stored.Format, rest []byte, names Names) Inspection {
	kind := config.Kind(f.Kind)
	name, payload, err := split(f, rest, names[kind])
	if err != nil {
		return undecodable(kind, fmt.Errorf("%s: %w", kind, err))
	}
	i := Inspection{Form: Form{Kind: kind, Name: name}}
	switch f {
	case stored.KMSv2:
		err = i.readKMSv2(payload)
	case stored.KMSv1:
		err = i.readKMSv1(payload)
	}
	if err != nil {
		return undecodable(kind, fmt.Errorf("%s %q: %w", kind, name, err))
	}
	return i
}

// undecodable is what begins as a kind, and is damaged.
func undecodable(begins config.Kind, problem error) Inspection {
	return Inspection{Form: Form{Kind: Undecodable, Begins: begins}, Problem: problem}
}

func (i *Inspection) readKMSv2(payload []byte) error {
	object, err := stored.Parse(payload)
	if err != nil {
		return err
	}
	i.Form.DEKSource = DEK
	if object.Source.Type == stored.SourceSeed {
		i.Form.DEKSource = Seed
	}
	i.KeyID = object.Source.KeyID
	i.Form.KeyIDHash = envelope.HashKeyID(i.KeyID)
	i.WrappedDEK = object.Source.Tail()
	return nil
}

// readKMSv1 reads the sealed DEK, which follows its length in two bytes.
func (i *Inspection) readKMSv1(payload []byte) error {
	n, ok := sealedBefore(payload)
	if !ok {
		return errCutOff
	}
	i.Form.DEKSource = DEK
	i.WrappedDEK = payload[2 : 2+n]
	return nil
}

// sealedBefore is how long the sealed DEK is before the value of KMS v1, if
// there is room for both.
func sealedBefore(payload []byte) (n int, ok bool) {
	if len(payload) < 2 {
		return 0, false
	}
	n = int(binary.BigEndian.Uint16(payload))
	return n, n > 0 && len(payload)-2-n >= minAESGCM
}

var errCutOff = errors.New("is cut off: restore it from a backup")

// The shortest payloads, in bytes: nonce or IV, and tag or one padded block.
const (
	minAESGCM    = 12 + 16
	minSecretbox = 24 + 16
	minAESCBC    = 16 + 16
	blockAESCBC  = 16
)

// fits reports whether a payload has a length that its format can have.
func fits(f stored.Format, payload []byte) bool {
	switch f {
	case stored.AESGCM:
		return len(payload) >= minAESGCM
	case stored.Secretbox:
		return len(payload) >= minSecretbox
	case stored.AESCBC:
		return len(payload) >= minAESCBC && len(payload)%blockAESCBC == 0
	case stored.KMSv1:
		n, ok := sealedBefore(payload)
		return ok && n <= maxSealedDEK
	}
	return true
}

// maxSealedDEK bounds a DEK as a KMS v1 plugin seals it, in bytes, where it helps
// to tell the end of a name from a ':' within it: two letters, taken for a
// length, are more.
const maxSealedDEK = 8 << 10

// maxName bounds the name of a key that is looked for, in bytes.
const maxName = 253

// split parts what follows a format's prefix into name and payload. Known names
// go first, the longest of them. Else the name ends at the first ':' after
// which the rest can be a payload, and before which there is only text.
func split(f stored.Format, rest []byte, known []string) (name string, payload []byte, err error) {
	name, payload, err = splitWhere(func(payload []byte) bool { return fits(f, payload) }, f, rest, known)
	if err == nil || f != stored.KMSv1 {
		return name, payload, err
	}
	possible := func(payload []byte) bool { _, ok := sealedBefore(payload); return ok }
	if name, payload, err := splitWhere(possible, f, rest, known); err == nil {
		return name, payload, nil
	}
	return "", nil, err
}

// splitWhere is split, where the payload is to fit.
func splitWhere(fits func([]byte) bool, f stored.Format, rest []byte, known []string) (name string, payload []byte, err error) {
	for _, k := range known {
		after, ok := bytes.CutPrefix(rest, []byte(k+":"))
		if ok && len(k) > len(name) && fits(after) {
			name, payload = k, after
		}
	}
	if name != "" {
		return name, payload, nil
	}
	err = fmt.Errorf("has no readable %s name", f.NameOf)
	for i, b := range rest[:min(len(rest), maxName+1)] {
		if b != ':' {
			continue
		}
		if i == 0 || !isText(rest[:i]) {
			return "", nil, err
		}
		if fits(rest[i+1:]) {
			return string(rest[:i]), rest[i+1:], nil
		}
		err = fmt.Errorf("%s %q: %w", f.NameOf, rest[:i], errCutOff)
	}
	return "", nil, err
}

func isText(b []byte) bool {
	return utf8.Valid(b) && bytes.IndexFunc(b, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
