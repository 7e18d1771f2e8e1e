package atrest

import (
	"context"
	"crypto/tls"
	"iter"
	"path"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// An apiserver that starts reads every object of a resource one after another.
// Each DEK that it meets for the first time is a call to the plugin, in which
// nothing else happens. So the DEKs are looked for ahead of it, in etcd itself:
// the sealed DEK of a value is in the clear.

const (
	warmPage    = 500 // values read from etcd at a time
	warmTimeout = time.Minute
	// warmResources is how many resources are looked through at once.
	warmResources = 4
)

// Warm has the DEKs of stored values unwrapped ahead of their readers, many at a
// time, and returns how many that were when they are there. [Encryption.RESTOptions]
// does it by itself for every resource with a KMS v2 provider.
func (e *Encryption) Warm(ctx context.Context, values iter.Seq[[]byte]) int {
	return e.inUse().Warm(ctx, values)
}

// warmResource looks through a resource in etcd in the background. What does
// not work is left to the readers, who are told.
func (e *Encryption) warmResource(resource schema.GroupResource, o generic.RESTOptions) {
	if !e.inUse().ReadsKMS(resource) || o.StorageConfig.Transport.EgressLookup != nil {
		return
	}
	prefix := path.Join("/", o.StorageConfig.Prefix, o.ResourcePrefix) + "/"
	if _, twice := e.warmed.LoadOrStore(prefix, nil); twice {
		return
	}
	e.ended.Go(func() {
		select {
		case e.warming <- struct{}{}:
			defer func() { <-e.warming }()
		case <-e.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(e.ctx, warmTimeout)
		defer cancel()
		client, err := etcdClient(ctx, o.StorageConfig.Transport)
		if err != nil {
			e.logger.V(1).Info("Did not look ahead for data encryption keys", "resource", resource, "cause", err)
			return
		}
		defer client.Close()
		start := e.clock.Now()
		n := e.Warm(ctx, storedUnder(ctx, client, prefix))
		e.logger.V(1).Info("Looked ahead for data encryption keys", "resource", resource, "unwrapped", n, "took", e.clock.Since(start))
	})
}

// etcdClient is a client of the etcd that an apiserver uses.
func etcdClient(ctx context.Context, t storagebackend.TransportConfig) (*clientv3.Client, error) {
	var secure *tls.Config
	if t.CertFile != "" || t.TrustedCAFile != "" {
		var err error
		info := transport.TLSInfo{CertFile: t.CertFile, KeyFile: t.KeyFile, TrustedCAFile: t.TrustedCAFile}
		if secure, err = info.ClientConfig(); err != nil {
			return nil, err
		}
	}
	return clientv3.New(clientv3.Config{Context: ctx, Endpoints: t.ServerList, TLS: secure, DialTimeout: 20 * time.Second})
}

// storedUnder yields the values under a prefix from whichever member is near; one
// that is a little behind does as well. It ends early if etcd does not answer.
func storedUnder(ctx context.Context, client *clientv3.Client, prefix string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		options := []clientv3.OpOption{
			clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(warmPage), clientv3.WithSerializable(),
		}
		for from := prefix; ; {
			page, err := client.Get(ctx, from, options...)
			if err != nil || len(page.Kvs) == 0 {
				return
			}
			for _, kv := range page.Kvs {
				if !yield(kv.Value) {
					return
				}
			}
			if !page.More {
				return
			}
			from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		}
	}
}
