package transformer

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"fmt"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/internal/stored"
)

// errCBC is the only error of Open: telling a bad length from a bad padding
// would make a padding oracle (RFC 5246 section 6.2.3.2 has the history).
var errCBC = fmt.Errorf("aescbc: the value does not decrypt: %w", stored.ErrCorrupt)

type aesCBC struct {
	redact.As
	block cipher.Block
}

var _ Provider = (*aesCBC)(nil)

// NewAESCBC seals with AES-CBC under a key of 16, 24 or 32 bytes, which is not
// kept. The payload is a random IV of 16 bytes and the ciphertext of the value
// with its PKCS #7 padding (RFC 5652 section 6.3), 1 to 16 bytes, always there.
//
// CBC authenticates nothing: a changed or moved value may open, to other bytes.
// Use it to read what is stored; write with aesgcm, secretbox or KMS.
func NewAESCBC(key []byte) (Provider, error) {
	block, err := newAES("aescbc", key)
	if err != nil {
		return nil, err
	}
	return &aesCBC{As: "aescbc key", block: block}, nil
}

func (p *aesCBC) Seal(_ context.Context, prefix string, plaintext []byte, _ value.Context) ([]byte, error) {
	const size = aes.BlockSize
	whole := len(plaintext) / size * size
	out := make([]byte, len(prefix)+size+whole+size)
	payload := out[copy(out, prefix):]

	iv, ciphertext := payload[:size], payload[size:]
	_, _ = rand.Read(iv) // never fails: it ends the process instead
	mode := cipher.NewCBCEncrypter(p.block, iv)
	mode.CryptBlocks(ciphertext, plaintext[:whole])

	last := ciphertext[whole:]
	n := copy(last, plaintext[whole:])
	for i := n; i < size; i++ {
		last[i] = byte(size - n)
	}
	mode.CryptBlocks(last, last)
	return out, nil
}

func (p *aesCBC) Open(_ context.Context, payload []byte, _ value.Context) ([]byte, bool, error) {
	const size = aes.BlockSize
	if len(payload) < 2*size || len(payload)%size != 0 {
		return nil, false, errCBC
	}
	iv, ciphertext := payload[:size], payload[size:]
	out := make([]byte, len(ciphertext))
	cipher.NewCBCDecrypter(p.block, iv).CryptBlocks(out, ciphertext)

	padding, ok := paddingOf([aes.BlockSize]byte(out[len(out)-size:]))
	if !ok {
		return nil, false, errCBC
	}
	return out[:len(out)-padding], false, nil
}

// paddingOf returns the length of the PKCS #7 padding that ends a value whose
// last block is given. It looks at every byte, whatever it finds.
func paddingOf(last [aes.BlockSize]byte) (n int, ok bool) {
	pad := last[len(last)-1]
	n = int(pad)
	good := subtle.ConstantTimeLessOrEq(1, n) & subtle.ConstantTimeLessOrEq(n, len(last))
	for i, b := range last {
		inside := subtle.ConstantTimeLessOrEq(len(last)-i, n)
		good &= subtle.ConstantTimeSelect(inside, subtle.ConstantTimeByteEq(b, pad), 1)
	}
	return n, good == 1
}
