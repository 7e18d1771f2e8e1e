package config

import (
	"encoding/base64"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
)

// keys reads the keys of one provider, each of one of the given lengths.
func (c *checker) keys(in []apiserver.Key, at *field.Path, lengths ...int) []Key {
	if len(in) == 0 {
		c.report(field.Required(at, "at least one keys is required: give each a name and a secret"))
	}
	keys := make([]Key, 0, len(in))
	for i, k := range in {
		if k.Name == "" {
			c.report(field.Required(at.Index(i).Child("name"),
				"name is a mandatory field for a key: it is stored with every value"))
		}
		keys = append(keys, newKey(k.Name, c.secret(k.Secret, at.Index(i).Child("secret"), lengths)))
	}
	return keys
}

// secret decodes a key. Not even a wrong one is repeated in a problem.
func (c *checker) secret(in string, at *field.Path, lengths []int) []byte {
	longest := lengths[len(lengths)-1]
	if in == "" {
		c.report(field.Required(at, fmt.Sprintf("secret is a mandatory field for a key: "+
			"make one with: head -c %d /dev/urandom | base64", longest)))
		return nil
	}
	secret, err := base64.StdEncoding.DecodeString(in)
	if err != nil {
		c.report(field.Invalid(at, "REDACTED", "secrets must be base64 encoded: with the standard alphabet and padding"))
		return nil
	}
	if !slices.Contains(lengths, len(secret)) {
		c.report(field.Invalid(at, "REDACTED", fmt.Sprintf("secret is not of the expected length, got %d, expected one of %v: "+
			"make one with: head -c %d /dev/urandom | base64", len(secret), lengths, longest)))
	}
	return secret
}
