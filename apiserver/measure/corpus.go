package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproto "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/stored"
)

const (
	kib = 1024
	// atOnce is how many keys are put into etcd in one transaction; it takes 128.
	atOnce = 100
)

// kmsPrefix is what values of both sides that encrypt begin with.
var kmsPrefix = stored.KMSv2.PrefixFor(providerName)

// data is 1 KiB that does not compress; the same seed gives the same data.
func data(seed uint64) []byte {
	made := make([]byte, kib)
	random := rand.New(rand.NewPCG(seed, 1))
	for i := range made {
		made[i] = byte(random.Uint32())
	}
	return made
}

// seal makes a stored value of plaintext for a key in etcd.
type seal func(ctx context.Context, plaintext []byte, key string) ([]byte, error)

// fill puts Secrets straight into etcd, as the server of this place would have stored
// them, under so many DEKs. kube-apiserver reads what the library has sealed, so both
// read the same form.
func (l *lab) fill(ctx context.Context, p *place, n, deks int) error {
	keep := func(_ context.Context, plaintext []byte, _ string) ([]byte, error) { return plaintext, nil }
	if p.side.encrypts {
		dialled, err := envelope.Dial(envelope.Endpoint(l.quick.endpoint), startTimeout, nil)
		if err != nil {
			return err
		}
		provider := envelope.NewProvider(dialled, envelope.Options{MaxWrites: uint64((n + deks - 1) / deks)})
		defer provider.Hold()()
		provider.SetRole(envelope.Writes)
		if err := provider.Prepare(ctx); err != nil {
			return err
		}
		keep = func(ctx context.Context, plaintext []byte, key string) ([]byte, error) {
			return provider.Seal(ctx, kmsPrefix, plaintext, value.DefaultContext(key))
		}
	}
	return l.put(ctx, p, n, keep)
}

// put puts the Secrets in an order that has nothing to do with their names, as in a store
// that was written over months: neighbours are under different DEKs.
func (l *lab) put(ctx context.Context, p *place, n int, keep seal) error {
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	for len(order) > 0 {
		some := order[:min(atOnce, len(order))]
		order = order[len(some):]
		var puts []clientv3.Op
		for _, i := range some {
			name := fmt.Sprintf("secret-%06d", i)
			plaintext, err := encoded(name, uint64(i))
			if err != nil {
				return err
			}
			kept, err := keep(ctx, plaintext, p.secretKey(name))
			if err != nil {
				return err
			}
			puts = append(puts, clientv3.OpPut(p.secretKey(name), string(kept)))
		}
		if _, err := l.stored.Txn(ctx).Then(puts...).Commit(); err != nil {
			return fmt.Errorf("put Secrets into etcd: %w", err)
		}
	}
	return nil
}

// encoded is a Secret in the form in which an apiserver stores it.
func encoded(name string, seed uint64) ([]byte, error) {
	s := secret(name, data(seed))
	s.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", seed))
	s.CreationTimestamp = metav1.NewTime(time.Unix(1_700_000_000, 0))
	var b bytes.Buffer
	err := kubeproto.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(s, &b)
	return b.Bytes(), err
}
