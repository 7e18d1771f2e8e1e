package bundle

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Source is the kind of object that a [Part] comes from.
type Source string

// What a part comes from. Both are handled alike: 0600, and never shown.
const (
	Secret    Source = "secret"
	ConfigMap Source = "configmap"
)

// Part names a piece of data that a plugin is given as a file: a data key of a Secret,
// such as a credential, or of a ConfigMap, such as a CA bundle. It is comparable.
type Part struct {
	Source Source
	// Name is that of the object, a DNS subdomain, and Key a data key in it.
	Name, Key string
}

// String names it in an error: secret "vault-approle", key "secret-id".
func (p Part) String() string {
	return fmt.Sprintf("%s %q, key %q", p.Source, p.Name, p.Key)
}

const (
	// configName is the data key of the EncryptionConfiguration.
	configName = "encryption-config"
	// manifestName is the data key of the revision and the hash.
	manifestName = "bundle"

	settingsPrefix = "kms-plugin-config-"
	partPrefix     = "kms-plugin-"

	// maxName is the longest data key of a Secret, and of the name of an object.
	maxName = 253
)

// FileName is the name of the part's file, which is also its data key in a Secret:
// kms-plugin-secret-vault-approle_secret-id-7.
func (p Part) FileName(id KeyID) string {
	return partPrefix + string(p.Source) + "-" + p.Name + "_" + p.Key + "-" + id.String()
}

// ParsePart reads what [Part.FileName] makes. The keyID is what follows the last "-",
// and the name of the object ends at the first "_", which no such name has.
func ParsePart(fileName string) (Part, KeyID, error) {
	at := strings.LastIndexByte(fileName, '-')
	if at < 0 {
		return Part{}, 0, notAPart(fileName, errors.New("it does not end with -KEYID"))
	}
	id, err := ParseKeyID(fileName[at+1:])
	if err != nil {
		return Part{}, 0, notAPart(fileName, err)
	}
	rest, ok := strings.CutPrefix(fileName[:at], partPrefix)
	source, of, _ := strings.Cut(rest, "-")
	p := Part{Source: Source(source)}
	if p.Name, p.Key, ok = cutAnd(ok, of); !ok {
		return Part{}, 0, notAPart(fileName, errors.New("it is not kms-plugin-SOURCE-NAME_KEY-KEYID"))
	}
	if err := p.check(id); err != nil {
		return Part{}, 0, notAPart(fileName, err)
	}
	return p, id, nil
}

func cutAnd(ok bool, of string) (name, key string, _ bool) {
	name, key, found := strings.Cut(of, "_")
	return name, key, ok && found
}

func notAPart(fileName string, err error) error {
	return fmt.Errorf("%.260q is no part of a bundle: %w", fileName, err)
}

var (
	objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	dataKey    = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)
)

// check is an error if it names no part, or one whose file for a keyID has a name that
// is too long. It does not repeat the name: somebody may have put the credential there.
func (p Part) check(id KeyID) error {
	switch {
	case p.Source != Secret && p.Source != ConfigMap:
		return fmt.Errorf("it comes from %.40q, which is neither %s nor %s", p.Source, Secret, ConfigMap)
	case len(p.Name) > maxName || !objectName.MatchString(p.Name):
		return fmt.Errorf("what is given is no name of a %s: one has at most %d lower case letters, digits, '-' and '.', and a letter or a digit at each end", p.Source, maxName)
	case len(p.Key) > maxName || !dataKey.MatchString(p.Key) || p.Key == "." || strings.HasPrefix(p.Key, ".."):
		return fmt.Errorf("%.260q is no data key of a %s: it has letters, digits, '-', '_' and '.'", p.Key, p.Source)
	}
	if name := p.FileName(id); len(name) > maxName {
		return fmt.Errorf("its data key would have %d characters, and at most %d are allowed: give the %s a shorter name", len(name), maxName, p.Source)
	}
	return nil
}
