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
	transformer, stop, err := startKube(ctx, c)
	if err != nil {
		return nil, err
	}
	s := l.side(c, transformer, func() { stop() })
	s.renew = func(ctx context.Context) error {
		stop()
		s.Transformer, stop, err = startKube(ctx, c)
		return err
	}
	return s, nil
}

func startKube(ctx context.Context, c Config) (value.Transformer, func(), error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	loaded, err := encryptionconfig.LoadEncryptionConfig(running, c.File, c.Reload, c.Name)
	if err != nil {
		stop()
		return nil, stop, fmt.Errorf("%s: %w", c.Name, err)
	}
	if !c.Reload {
		static := encryptionconfig.StaticTransformers(loaded.Transformers)
		return static.TransformerForResource(Secrets), stop, nil
	}
	setReloadPoll()
	dynamic := encryptionconfig.NewDynamicTransformers(loaded.Transformers, loaded.HealthChecks[0], stop, loaded.KMSCloseGracePeriod)
	follow := controller.NewDynamicEncryptionConfiguration(c.Name, c.File, dynamic, loaded.EncryptionFileContentHash, c.Name)
	var ended sync.WaitGroup
	ended.Go(func() { follow.Run(running) })
	return dynamic.TransformerForResource(Secrets), func() { stop(); ended.Wait() }, nil
}
