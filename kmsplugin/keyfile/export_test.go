package keyfile

import "testing"

// Full is the content of a file with MaxVersions versions.
func Full(t testing.TB) []byte {
	t.Helper()
	return encoded(t, newKeys(t, MaxVersions))
}
