package keyfile

import (
	"io"
	"testing"
)

// MaxFileSize is the size of the largest key file that is read.
const MaxFileSize = maxFileSize

// WithRandom sets where new keys and their ids come from.
func WithRandom(random io.Reader) Option { return func(f *File) { f.random = random } }

// Full is the content of a file with as many versions as there may be.
func Full(t testing.TB) []byte {
	t.Helper()
	return encoded(t, newRing(t, maxVersions))
}
