package transformer_test

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/transformer"
)

// Secrets are written with AES-GCM; those from before encryption was turned on
// are still read, and reported stale.
func Example() {
	gcm, err := transformer.NewAESGCM([]byte("a key of 32 bytes, from a file.."))
	if err != nil {
		panic(err)
	}
	chain := transformer.NewChain(schema.GroupResource{Resource: "secrets"}, []transformer.Entry{
		{Prefix: "k8s:enc:aesgcm:v1:key1:", Label: "k8s:enc:aesgcm:v1:", Provider: gcm},
		{Label: "identity", Provider: transformer.Identity()},
	})

	ctx := context.Background()
	etcdKey := value.DefaultContext("/registry/secrets/default/password")
	stored, err := chain.TransformToStorage(ctx, []byte("hunter2"), etcdKey)
	if err != nil {
		panic(err)
	}
	fmt.Printf("stored: %s...\n", stored[:len("k8s:enc:aesgcm:v1:key1:")])

	for _, data := range [][]byte{stored, []byte("from before")} {
		plaintext, stale, err := chain.TransformFromStorage(ctx, data, etcdKey)
		fmt.Printf("read: %s, stale: %v, error: %v\n", plaintext, stale, err)
	}
	// Output:
	// stored: k8s:enc:aesgcm:v1:key1:...
	// read: hunter2, stale: false, error: <nil>
	// read: from before, stale: true, error: <nil>
}

// A key that was removed too early makes values unreadable, not lost.
func ExampleChain_TransformFromStorage_removedKey() {
	chain := transformer.NewChain(schema.GroupResource{Resource: "secrets"}, []transformer.Entry{
		{Label: "identity", Provider: transformer.Identity()},
	})
	_, _, err := chain.TransformFromStorage(context.Background(),
		[]byte("k8s:enc:secretbox:v1:2025:..."), value.DefaultContext("/registry/secrets/default/password"))
	fmt.Println(errors.Is(err, transformer.ErrNoProvider))
	fmt.Println(err)
	// Output:
	// true
	// secrets at "/registry/secrets/default/password": stored with secretbox, key "2025": no matching prefix found among [identity]; add that provider and key back to the resource's providers, after the first one, to read it
}

func ExampleNewSecretbox() {
	box, err := transformer.NewSecretbox(make([]byte, 16))
	fmt.Println(box, err)

	box, _ = transformer.NewSecretbox(make([]byte, 32))
	fmt.Printf("%+v\n", box)
	// Output:
	// <nil> secretbox: the key has 16 bytes, want 32
	// secretbox key (redacted)
}
