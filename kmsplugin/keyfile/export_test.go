package keyfile

import (
	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
	"io"
	"testing"
)

// MaxFileSize is the size of the largest key file that is read.
const MaxFileSize = keptfile.MaxSize

// WithRandom sets where new keys and their ids come from.
func WithRandom(random io.Reader) Option { return func(f *File) { f.random = random } }

// Full is the content of a file with as many versions as there may be.
func Full(t testing.TB) []byte {
	t.Helper()
	return encoded(t, ringOf(t, maxVersions))
}
