package keyfile_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

func TestAFileThatCannotBeReliedOnStopsWrappingAndNotReading(t *testing.T) {
	for name, test := range map[string]struct {
		spoil   func(path string) error
		problem string
	}{
		"gone":         {os.Remove, "restore it from a copy"},
		"cut short":    {func(path string) error { return os.Truncate(path, 100) }, "damaged"},
		"open to all":  {func(path string) error { return os.Chmod(path, 0o644) }, "chmod 600"},
		"another file": {func(path string) error { return replaceByNew(path) }, "no longer has every version"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			sealed := s.encrypt()
			keyID := s.status().KeyId
			whole := content(t, s.file)
			require.NoError(t, test.spoil(s.file.Path()))

			answer := s.status()
			require.Contains(t, answer.Healthz, test.problem)
			require.Contains(t, answer.Healthz, s.file.Path())
			require.Equal(t, keyID, answer.KeyId, "no apiserver takes its values for stale")
			_, err := s.client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: dek})
			require.Equal(t, codes.Unavailable, status.Code(err))
			require.ErrorContains(t, err, test.problem)
			s.requireReads(sealed)
			_, err = s.decrypt(&kmsapi.EncryptResponse{Ciphertext: []byte("c"), KeyId: "unknown"})
			require.Equal(t, codes.NotFound, status.Code(err))
			require.ErrorContains(t, err, "was not read again")

			require.NoError(t, os.WriteFile(s.file.Path(), whole, 0o600))
			require.NoError(t, os.Chmod(s.file.Path(), 0o600))
			require.Equal(t, kmsplugin.Healthy, s.status().Healthz)
			s.requireReads(s.encrypt())
		})
	}
}

func TestAModeMadeRightAgainIsNoticed(t *testing.T) {
	s := serve(t)
	require.NoError(t, os.Chmod(s.file.Path(), 0o644))
	require.Contains(t, s.status().Healthz, "chmod 600")
	require.NoError(t, os.Chmod(s.file.Path(), 0o600))
	require.Equal(t, kmsplugin.Healthy, s.status().Healthz)
}

func replaceByNew(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	file := keyfile.At(path)
	for range 3 { // longer than the one it replaces
		if _, err := file.Create(context.Background()); err == nil {
			continue
		}
		if _, err := file.Rotate(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

func TestAnotherFileOfTheSameSizeAndTimeIsNoticed(t *testing.T) {
	s := serve(t)
	other, _ := created(t)
	seen, err := os.Stat(s.file.Path())
	require.NoError(t, err)
	require.Len(t, content(t, other), int(seen.Size()))
	require.NoError(t, os.Chtimes(other.Path(), seen.ModTime(), seen.ModTime()))
	require.NoError(t, os.Rename(other.Path(), s.file.Path()))
	require.Contains(t, s.status().Healthz, "no longer has every version")
}

func TestAnOlderCopyIsNoticed(t *testing.T) {
	s := serve(t)
	older := content(t, s.file)
	info, err := s.plugin.Rotate(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.file.Path(), older, 0o600))

	answer := s.status()
	require.Contains(t, answer.Healthz, "no longer has every version")
	require.Contains(t, answer.Healthz, info.KeyID)
	require.Equal(t, info.KeyID, answer.KeyId)
}
