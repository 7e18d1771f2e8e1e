package side

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/tink"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	kms "k8s.io/kms/pkg/service"
)

// Tink is tink-go's KMS envelope with AES-256-GCM: a DEK for each value, wrapped
// by the plugin in a call of its own. It knows no prefixes and counts nothing.
func (l *Lab) Tink(ctx context.Context, name string, p *Plugin) (*Side, error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	plugin, err := kmsv2.NewGRPCService(running, p.Endpoint, name, callTimeout)
	if err != nil {
		stop()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	envelope, err := aead.NewKMSEnvelopeAEADWithContext(aead.AES256GCMKeyTemplate(), &kek{plugin})
	if err != nil {
		stop()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l.side(Config{Name: name}, tinkTransformer{envelope}, stop), nil
}

type tinkTransformer struct{ envelope tink.AEADWithContext }

func (t tinkTransformer) TransformToStorage(ctx context.Context, data []byte, at value.Context) ([]byte, error) {
	return t.envelope.EncryptWithContext(ctx, data, at.AuthenticatedData())
}

func (t tinkTransformer) TransformFromStorage(ctx context.Context, data []byte, at value.Context) ([]byte, bool, error) {
	out, err := t.envelope.DecryptWithContext(ctx, data, at.AuthenticatedData())
	return out, false, err
}

// kek is a KMS v2 plugin as tink's key encryption key, called by kube-apiserver's
// own client. The key_id goes in front of the wrapped DEK, since tink keeps one
// piece only.
type kek struct{ plugin kms.Service }

func (k *kek) EncryptWithContext(ctx context.Context, dek, _ []byte) ([]byte, error) {
	w, err := k.plugin.Encrypt(ctx, "bench", dek)
	if err != nil {
		return nil, err
	}
	out := binary.BigEndian.AppendUint16(nil, uint16(len(w.KeyID)))
	return append(append(out, w.KeyID...), w.Ciphertext...), nil
}

func (k *kek) DecryptWithContext(ctx context.Context, wrapped, _ []byte) ([]byte, error) {
	if len(wrapped) < 2 || len(wrapped)-2 < int(binary.BigEndian.Uint16(wrapped)) {
		return nil, errors.New("not a wrapped DEK")
	}
	end := 2 + int(binary.BigEndian.Uint16(wrapped))
	return k.plugin.Decrypt(ctx, "bench", &kms.DecryptRequest{KeyID: string(wrapped[2:end]), Ciphertext: wrapped[end:]})
}
