package config

import (
	"errors"
	"fmt"

	"github.com/kube-atrest/atrest/internal/hashed"
)

// MaxSize is the length in bytes of the largest file that [Parse] reads: room
// for thousands of keys, and what a Kubernetes Secret that carries the file can
// hold.
const MaxSize = 1 << 20

// Options are the circumstances under which a file is read. The zero value is
// kube-apiserver's default.
type Options struct {
	// File names the file in errors. Parse does not open it.
	File string
	// Reload tells that the file is read again while the server runs. Then the
	// names of KMS v1 providers have to be unique too.
	Reload bool
	// KMSv1 is the feature gate of the same name: without it a KMS v1 provider
	// is an error.
	KMSv1 bool
}

// Parse decodes, defaults and checks the content of a file. The error, if any,
// is an [*Error] that lists every problem found; it never holds key material.
//
// Whatever kube-apiserver refuses is refused, with the same field path. Beyond
// that, Parse refuses:
//
//   - a file of more than [MaxSize] bytes, or one whose entries have more than a
//     million pairs of a resource and a provider;
//   - a YAML document after the first, which kube-apiserver ignores in silence
//     (an empty one may stand there);
//   - the apiVersion apiserver.config.k8s.io/__internal, which makes
//     kube-apiserver panic when a KMS provider leaves out its timeout;
//   - a resource name that no resource can have, such as "", "pods/status" or
//     "*.*.apps", which kube-apiserver accepts and then never encrypts for.
func Parse(data []byte, o Options) (*Configuration, error) {
	if len(data) == 0 {
		return nil, refuse(o, errors.New("empty: write an EncryptionConfiguration into it"))
	}
	if len(data) > MaxSize {
		return nil, refuse(o, fmt.Errorf("%d bytes long, at most %d are read: remove keys that no stored value needs", len(data), MaxSize))
	}
	file, problems := decode(data)
	if file == nil {
		return nil, refuse(o, problems...)
	}
	entries, found := check(file, o)
	if problems = append(problems, found...); len(problems) > 0 {
		return nil, refuse(o, problems...)
	}
	return resolve(hashed.Name(data), entries), nil
}
