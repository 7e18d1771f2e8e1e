package gcm

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/fips140"
	"testing"

	"github.com/stretchr/testify/require"
)

// A binary built with boringcrypto takes this way; the bytes must be the same.
func TestOwnRandomNonceGCMMatchesTheRuntimes(t *testing.T) {
	block, err := aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	var plain cipher.AEAD
	fips140.WithoutEnforcement(func() { plain, err = cipher.NewGCM(block) })
	require.NoError(t, err)
	own := randomNonce{plain}
	runtimes, err := cipher.NewGCMWithRandomNonce(block)
	require.NoError(t, err)
	require.Equal(t, runtimes.NonceSize(), own.NonceSize())
	require.Equal(t, runtimes.Overhead(), own.Overhead())

	for from, to := range map[cipher.AEAD]cipher.AEAD{own: runtimes, runtimes: own} {
		for size := range 40 {
			plaintext := make([]byte, size)
			sealed := from.Seal([]byte("prefix"), nil, plaintext, []byte("aad"))
			require.Len(t, sealed, len("prefix")+size+from.Overhead())
			sealed = sealed[len("prefix"):]
			opened, err := to.Open(nil, nil, sealed, []byte("aad"))
			require.NoError(t, err)
			require.Equal(t, string(plaintext), string(opened))
			for cut := range sealed {
				_, err := to.Open(nil, nil, sealed[:cut], []byte("aad"))
				require.Error(t, err)
			}
		}
	}
	require.NotEqual(t, own.Seal(nil, nil, nil, nil), own.Seal(nil, nil, nil, nil))
}

// wrapped is a block cipher that the runtime does not know for AES.
type wrapped struct{ cipher.Block }

func TestUnknownBlockCiphersGetTheOwnGCM(t *testing.T) {
	block, err := aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	aead, err := RandomNonce(wrapped{block})
	if fips140.Enforced() {
		require.Error(t, err, "it cannot be told to be AES")
		return
	}
	require.NoError(t, err)
	require.IsType(t, randomNonce{}, aead)
}

func TestOnlyTheFIPSModeRefusesAGivenNonce(t *testing.T) {
	block, err := aes.NewCipher(make([]byte, 32))
	require.NoError(t, err)
	_, err = GivenNonce(block)
	require.Equal(t, fips140.Enforced(), err != nil, "%v", err)
	_, err = RandomNonce(block)
	require.NoError(t, err)
}
