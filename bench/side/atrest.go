package side

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/envelope"
)

// Config is what an apiserver is started with.
type Config struct {
	Name string // of the side
	File string // the EncryptionConfiguration
	// Reload follows the file while the side is in use.
	Reload bool
}

// Atrest is this library, linked in as an apiserver does it.
func (l *Lab) Atrest(ctx context.Context, c Config, mode envelope.WriteMode) (*Side, error) {
	o := atrest.NewOptions()
	o.ConfigFile, o.AutomaticReload, o.DEKSource = c.File, c.Reload, string(mode)
	encryption, err := o.Start(ctx, c.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() { _ = encryption.Run(running) }) // a side that does not follow its file fails where it has to
	all := l.side(c, encryption.ResourceTransformers().TransformerForResource(Secrets), func() {
		stop()
		ended.Wait()
		encryption.Close()
	})
	all.LookAhead = func(ctx context.Context, values iter.Seq[[]byte]) { encryption.Warm(ctx, values) }
	return all, nil
}
