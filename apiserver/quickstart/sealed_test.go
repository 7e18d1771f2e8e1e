package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/stored"
)

func TestLookShowsTheCiphertextAndItsKeyID(t *testing.T) {
	source, err := stored.NewDEKSource(stored.SourceDEK, "an id", []byte("wrapped"), nil)
	require.NoError(t, err)
	value := stored.AppendDataHead([]byte("k8s:enc:kms:v2:key-file:"), 3)
	value = append(append(value, 1, 2, 3), source.Tail()...)

	found, err := look(value, []byte("plain"))
	require.NoError(t, err)
	require.Equal(t, "an id", found.keyID)
	require.Regexp(t, `^k8s:enc:kms:v2:key-file: 0a 03 01 02 03 .* \.\.\. \([0-9]+ bytes\)$`, found.String())
}

func TestLookRefusesWhatIsNotEncrypted(t *testing.T) {
	for name, value := range map[string]string{
		"plaintext":             "k8s\x00plain",
		"plaintext behind":      "k8s:enc:kms:v2:key-file:plain",
		"another provider":      "k8s:enc:aescbc:v1:key:\x01",
		"no stored object":      "k8s:enc:kms:v2:key-file:\xff",
		"nothing behind prefix": "k8s:enc:kms:v2:key-file:",
	} {
		_, err := look([]byte(value), []byte("plain"))
		require.Error(t, err, name)
	}
}
