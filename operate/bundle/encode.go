package bundle

import "errors"

// Encode gives the bundle as the data of a Secret: bundle, with the revision and the
// hash, encryption-config, and for each keyID kms-plugin-config-KEYID and its parts.
// The contents are the caller's.
func (b *Bundle) Encode() map[string][]byte { return nil }

// Decode reads what [Bundle.Encode] gives, and refuses it whole if anything in it is
// unknown, missing or not what the hash is of.
func Decode(data map[string][]byte) (*Bundle, error) { return nil, errors.New("not yet") }
