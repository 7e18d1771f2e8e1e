package rotation

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/kmsplugin"
)

// Plugins as there are in front of a KMS, which hold no keys themselves.
const (
	// laggingPlugin hears late of a new version of the key: it names and wraps with the
	// newest of the first key file, and unwraps with all of the second. Its arguments are
	// both files and the endpoint.
	laggingPlugin = "lagging-plugin"
	// newestPlugin is in front of a KMS where all versions but the newest are disabled.
	// Its arguments are the key file and the endpoint.
	newestPlugin = "newest-plugin"
	// deafPlugin is in front of a KMS that lets it encrypt and not decrypt. Its arguments
	// are the key file and the endpoint.
	deafPlugin = "deaf-plugin"
)

func runLaggingPlugin() int {
	known, err := harness.Keys(os.Args[1])
	all, err2 := harness.Keys(os.Args[2])
	if err := errors.Join(err, err2); err != nil {
		return harness.Ended(err)
	}
	return harness.Ended(harness.Serve(os.Args[3], lagging{known, all}))
}

func runNewestPlugin() int {
	keys, err := harness.Keys(os.Args[1])
	if err != nil {
		return harness.Ended(err)
	}
	return harness.Ended(harness.Serve(os.Args[2], newest{keys}))
}

func runDeafPlugin() int {
	keys, err := harness.Keys(os.Args[1])
	if err != nil {
		return harness.Ended(err)
	}
	return harness.Ended(harness.Serve(os.Args[2], deaf{keys}))
}

type lagging struct {
	kmsplugin.Service
	all kmsplugin.Service
}

func (l lagging) Decrypt(ctx context.Context, uid string, sealed kmsplugin.Sealed) ([]byte, error) {
	return l.all.Decrypt(ctx, uid, sealed)
}

type newest struct{ kmsplugin.Service }

func (n newest) Decrypt(ctx context.Context, uid string, sealed kmsplugin.Sealed) ([]byte, error) {
	current, err := n.Status(ctx)
	if err != nil {
		return nil, err
	}
	if sealed.KeyID != current {
		return nil, fmt.Errorf("%w: version %s is disabled", kmsplugin.ErrUnknownKey, sealed.KeyID)
	}
	return n.Service.Decrypt(ctx, uid, sealed)
}

type deaf struct{ kmsplugin.Service }

func (deaf) Decrypt(context.Context, string, kmsplugin.Sealed) ([]byte, error) {
	return nil, errors.New("permission denied")
}
