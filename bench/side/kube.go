package side

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/apiserver/pkg/storage/value"
)

// reloadPoll is how often kube-apiserver's controller looks at its file here. It
// is a minute by default, which nobody should have to wait for.
const reloadPoll = time.Second

var setReloadPoll = sync.OnceFunc(func() { controller.EncryptionConfigFileChangePollDuration = reloadPoll })

// Kube is kube-apiserver's own encryption, put together from its parts as
// kube-apiserver does it: with Reload as if
// --encryption-provider-config-automatic-reload were given.
func (l *Lab) Kube(ctx context.Context, c Config) (*Side, error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	loaded, err := encryptionconfig.LoadEncryptionConfig(running, c.File, c.Reload, c.Name)
	if err != nil {
		stop()
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	var transformers value.ResourceTransformers = encryptionconfig.StaticTransformers(loaded.Transformers)
	var ended sync.WaitGroup
	if c.Reload {
		dynamic := encryptionconfig.NewDynamicTransformers(loaded.Transformers, loaded.HealthChecks[0], stop, loaded.KMSCloseGracePeriod)
		setReloadPoll()
		follow := controller.NewDynamicEncryptionConfiguration(c.Name, c.File, dynamic, loaded.EncryptionFileContentHash, c.Name)
		ended.Go(func() { follow.Run(running) })
		transformers = dynamic
	}
	return l.side(c, transformers.TransformerForResource(Secrets), func() {
		stop()
		ended.Wait()
	}), nil
}
