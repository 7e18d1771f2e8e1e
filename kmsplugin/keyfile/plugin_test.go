package keyfile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

var dek = []byte("a DEK of exactly thirty-two byte")

// a served key file, as an apiserver sees it.
type served struct {
	t        *testing.T
	file     *keyfile.File
	plugin   *keyfile.Plugin
	endpoint string
	client   kmsapi.KeyManagementServiceClient
	stop     func()
}

func serve(t *testing.T) *served {
	t.Helper()
	file, _ := created(t)
	s := &served{t: t, file: file, endpoint: plugintest.Endpoint(t)}
	s.start()
	return s
}

func (s *served) start() {
	s.t.Helper()
	var err error
	s.plugin, err = s.file.Open()
	require.NoError(s.t, err)
	s.stop = plugintest.Serve(s.t, s.endpoint, s.plugin)
	s.client = plugintest.Dial(s.t, s.endpoint)
}

func (s *served) status() *kmsapi.StatusResponse {
	s.t.Helper()
	answer, err := s.client.Status(s.t.Context(), &kmsapi.StatusRequest{})
	require.NoError(s.t, err)
	return answer
}

func (s *served) encrypt() *kmsapi.EncryptResponse {
	s.t.Helper()
	answer, err := s.client.Encrypt(s.t.Context(), &kmsapi.EncryptRequest{Plaintext: dek, Uid: "write"})
	require.NoError(s.t, err)
	return answer
}

func (s *served) decrypt(sealed *kmsapi.EncryptResponse) ([]byte, error) {
	answer, err := s.client.Decrypt(s.t.Context(), &kmsapi.DecryptRequest{
		Ciphertext: sealed.Ciphertext, KeyId: sealed.KeyId, Annotations: sealed.Annotations, Uid: "read",
	})
	return answer.GetPlaintext(), err
}

func (s *served) requireReads(sealed *kmsapi.EncryptResponse) {
	s.t.Helper()
	plaintext, err := s.decrypt(sealed)
	require.NoError(s.t, err)
	require.Equal(s.t, dek, plaintext)
}

func TestAKeyFileIsABackEnd(t *testing.T) {
	file, _ := created(t)
	plugintest.Test(t, plugintest.Backend{
		Open: func(t testing.TB) kmsplugin.Service {
			plugin, err := file.Open()
			require.NoError(t, err)
			return plugin
		},
		Rotate: func(t testing.TB) {
			_, err := keyfile.At(file.Path()).Rotate(t.Context())
			require.NoError(t, err)
		},
	})
}

func TestRotationWhileServing(t *testing.T) {
	for name, rotate := range map[string]func(*served) (keyfile.KeyInfo, error){
		"in process": func(s *served) (keyfile.KeyInfo, error) { return s.plugin.Rotate(s.t.Context()) },
		"from outside": func(s *served) (keyfile.KeyInfo, error) {
			return keyfile.At(s.file.Path()).Rotate(s.t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			before := s.encrypt()
			info, err := rotate(s)
			require.NoError(t, err)
			require.NotEqual(t, before.KeyId, info.KeyID)

			require.Equal(t, info.KeyID, s.status().KeyId)
			after := s.encrypt()
			require.Equal(t, info.KeyID, after.KeyId)
			s.requireReads(before)
			s.requireReads(after)
		})
	}
}

func TestRotateInProcessNeedsNoStatusToTakeEffect(t *testing.T) {
	s := serve(t)
	info, err := s.plugin.Rotate(t.Context())
	require.NoError(t, err)
	require.Equal(t, info.KeyID, s.encrypt().KeyId)
}

func TestEncryptUsesTheKeyThatStatusAnnounced(t *testing.T) {
	s := serve(t)
	announced := s.status().KeyId
	sealed := s.encrypt()
	_, err := s.file.Rotate(t.Context())
	require.NoError(t, err)
	s.requireReads(sealed)
	require.Equal(t, announced, s.encrypt().KeyId, "an apiserver would throw a DEK under any other key_id away")
}

func TestAKeyOfAnotherProcessIsReadBeforeStatusTellsOfIt(t *testing.T) {
	s := serve(t)
	_, err := s.file.Rotate(t.Context())
	require.NoError(t, err)
	other, err := s.file.Open()
	require.NoError(t, err)
	sealed, err := other.Encrypt(t.Context(), "", dek)
	require.NoError(t, err)
	s.requireReads(&kmsapi.EncryptResponse{Ciphertext: sealed.Ciphertext, KeyId: sealed.KeyID})
}

func TestManyCallersWhileTheKeyRotates(t *testing.T) {
	s := serve(t)
	const rotations, callers = 20, 6
	done := make(chan struct{})
	var sealed sync.Map // *kmsapi.EncryptResponse
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			client := plugintest.Dial(t, s.endpoint)
			for rotating := true; rotating; {
				select {
				case <-done:
					rotating = false // one more round, after the last rotation
				default:
				}
				if _, err := client.Status(t.Context(), &kmsapi.StatusRequest{}); err != nil {
					t.Error("status:", err)
				}
				answer, err := client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: dek})
				if err != nil {
					t.Error("encrypt:", err)
					return
				}
				sealed.Store(answer, nil)
				got, err := client.Decrypt(t.Context(), &kmsapi.DecryptRequest{Ciphertext: answer.Ciphertext, KeyId: answer.KeyId})
				if err != nil || !bytes.Equal(got.Plaintext, dek) {
					t.Error("decrypt:", err)
				}
			}
		})
	}
	for i := range rotations {
		rotate := s.plugin.Rotate
		if i%2 == 0 {
			rotate = keyfile.At(s.file.Path()).Rotate
		}
		_, err := rotate(t.Context())
		require.NoError(t, err)
	}
	close(done)
	all.Wait()

	s.stop()
	s.start()
	used := map[string]bool{}
	sealed.Range(func(key, _ any) bool {
		answer := key.(*kmsapi.EncryptResponse)
		used[answer.KeyId] = true
		s.requireReads(answer)
		return true
	})
	require.True(t, used[s.status().KeyId], "the last key was used")
	listed, err := s.file.List()
	require.NoError(t, err)
	require.Len(t, listed, 1+rotations)
}

func TestAnUnknownKeyIDSaysWhatToDo(t *testing.T) {
	s := serve(t)
	old := s.encrypt()
	s.stop()
	require.NoError(t, os.Remove(s.file.Path()))
	_, err := s.file.Create(t.Context())
	require.NoError(t, err)
	s.start()

	_, err = s.decrypt(old)
	require.Equal(t, codes.NotFound, status.Code(err))
	for _, part := range []string{old.KeyId, s.file.Path(), "bring back the one that has this version", "copy that host's file here", "another plugin"} {
		require.ErrorContains(t, err, part)
	}
	long := &kmsapi.EncryptResponse{Ciphertext: old.Ciphertext, KeyId: strings.Repeat("x", 1024)}
	_, err = s.decrypt(long)
	require.Equal(t, codes.NotFound, status.Code(err))
	require.NotContains(t, err.Error(), strings.Repeat("x", 65), "what others chose does not fill the log")
}

// The key file's own form has no annotations.
func TestACiphertextWithAnnotationsIsInvalid(t *testing.T) {
	s := serve(t)
	sealed := s.encrypt()
	sealed.Annotations = map[string][]byte{"a.example": nil}
	_, err := s.decrypt(sealed)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

func TestCallsInProcessAreBoundedToo(t *testing.T) {
	file, info := created(t)
	plugin, err := file.Open()
	require.NoError(t, err)
	for _, plaintext := range [][]byte{nil, {}, make([]byte, kmsplugin.MaxPlaintext+1)} {
		_, err := plugin.Encrypt(t.Context(), "", plaintext)
		require.ErrorIs(t, err, kmsplugin.ErrInvalid)
	}
	largest, err := plugin.Encrypt(t.Context(), "", make([]byte, kmsplugin.MaxPlaintext))
	require.NoError(t, err)
	require.LessOrEqual(t, len(largest.Ciphertext), kmsplugin.MaxCiphertext)
	_, err = plugin.Decrypt(t.Context(), "", kmsplugin.Sealed{KeyID: info.KeyID})
	require.ErrorIs(t, err, kmsplugin.ErrInvalid)
	_, err = plugin.Decrypt(t.Context(), "", kmsplugin.Sealed{})
	require.ErrorIs(t, err, kmsplugin.ErrUnknownKey)
}

func TestTheKeyIDIsPartOfWhatIsAuthenticated(t *testing.T) {
	// Two files whose only version has the same key bytes, but not the same
	// key_id: what one wrapped is not what the other would have wrapped.
	same := func(id byte) *keyfile.Plugin {
		random := bytes.NewReader(append(bytes.Repeat([]byte{id}, 16), bytes.Repeat([]byte{9}, 32)...))
		file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"), keyfile.WithRandom(random))
		_, err := file.Create(t.Context())
		require.NoError(t, err)
		plugin, err := file.Open()
		require.NoError(t, err)
		return plugin
	}
	one, two := same(1), same(2)
	sealed, err := one.Encrypt(t.Context(), "", dek)
	require.NoError(t, err)
	theirs, err := two.Status(t.Context())
	require.NoError(t, err)
	sealed.KeyID = theirs.KeyID
	_, err = two.Decrypt(t.Context(), "", sealed)
	require.ErrorIs(t, err, kmsplugin.ErrInvalid)
}
