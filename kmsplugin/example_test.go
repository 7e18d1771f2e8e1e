package kmsplugin_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// oneKey is the smallest Service there can be: one KEK, gone with the process.
type oneKey struct {
	keyID string
	kek   cipher.AEAD
}

func newOneKey() (*oneKey, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	kek, err := cipher.NewGCMWithRandomNonce(block)
	return &oneKey{keyID: uuid.NewString(), kek: kek}, err
}

func (k *oneKey) Status(context.Context) (string, error) { return k.keyID, nil }

func (k *oneKey) Encrypt(_ context.Context, _ string, plaintext []byte) (kmsplugin.Sealed, error) {
	return kmsplugin.Sealed{Ciphertext: k.kek.Seal(nil, nil, plaintext, []byte(k.keyID)), KeyID: k.keyID}, nil
}

func (k *oneKey) Decrypt(_ context.Context, _ string, sealed kmsplugin.Sealed) ([]byte, error) {
	if sealed.KeyID != k.keyID {
		return nil, fmt.Errorf("%w %q: the process that had it has ended", kmsplugin.ErrUnknownKey, sealed.KeyID)
	}
	plaintext, err := k.kek.Open(nil, nil, sealed.Ciphertext, []byte(k.keyID))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kmsplugin.ErrInvalid, err)
	}
	return plaintext, nil
}

// A plugin is a Service, a socket and a context that says when it is over.
func Example() {
	folder, err := os.MkdirTemp("", "kms")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	service, err := newOneKey()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server, err := kmsplugin.Listen(ctx, "unix://"+filepath.Join(folder, "kms.sock"), service)
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error)
	go func() { ended <- server.Serve(ctx) }()

	// An apiserver whose EncryptionConfiguration names server.Endpoint() would
	// be served now.

	stop()
	fmt.Println("ended with", <-ended)
	// Output: ended with <nil>
}
