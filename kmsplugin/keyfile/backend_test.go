package keyfile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

var dek = []byte("a DEK of exactly thirty-two byte")

// often looks at a file more often than a plugin would.
func often() kmsplugin.Config {
	config := keyfile.Config()
	config.Poll = 5 * time.Millisecond
	return patient(config)
}

// patient is for a disk that is busy with other tests, where what takes long is no trouble.
func patient(config kmsplugin.Config) kmsplugin.Config {
	config.CallTimeout = 20 * time.Second
	return config
}

// well keeps a file, and waits until it is.
func well(t *testing.T, file *keyfile.File, config kmsplugin.Config) *kmsplugin.Keeper {
	t.Helper()
	k := plugintest.Keep(t, file, config)
	require.Eventually(t, func() bool { _, err := k.Status(t.Context()); return err == nil }, time.Minute, time.Millisecond)
	return k
}

// a served key file, as an apiserver sees it.
type served struct {
	t        *testing.T
	file     *keyfile.File
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
	s.stop = plugintest.Serve(s.t, s.endpoint, well(s.t, s.file, often()))
	s.client = plugintest.Dial(s.t, s.endpoint)
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

// announces waits until Status tells a key_id.
func (s *served) announces(keyID string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		answer, err := s.client.Status(s.t.Context(), &kmsapi.StatusRequest{})
		return err == nil && answer.KeyId == keyID
	}, time.Minute, time.Millisecond)
}

func TestAKeyFileIsABackEnd(t *testing.T) {
	file, _ := created(t)
	plugintest.Test(t, plugintest.Backend{
		Open: func(t testing.TB) kmsplugin.Service { return plugintest.Keep(t, file, often()) },
		Rotate: func(t testing.TB) {
			_, err := keyfile.At(file.Path()).Rotate(t.Context())
			require.NoError(t, err)
		},
	})
}

// A key file is looked at often, and what is seen of it once is all of it.
func TestAPluginShowsARotationAtOnce(t *testing.T) {
	require.Equal(t, kmsplugin.Config{Poll: time.Second, Steady: 1}, keyfile.Config())
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
	for range rotations {
		info, err := keyfile.At(s.file.Path()).Rotate(t.Context())
		require.NoError(t, err)
		s.announces(info.KeyID)
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
	listed, err := s.file.List()
	require.NoError(t, err)
	require.Len(t, listed, 1+rotations)
	require.True(t, used[listed[rotations].KeyID], "the last key was used")
}

// Neither node ever writes what the other one cannot read.
func TestTwoNodesReadEachOtherThroughARotation(t *testing.T) {
	one, two := serve(t), serve(t)
	two.stop()
	require.NoError(t, os.Remove(two.file.Path()))
	_, err := two.file.Import(t.Context(), one.file.Path())
	require.NoError(t, err)
	two.start()
	both := func(keyID string) {
		t.Helper()
		for _, s := range []*served{one, two} {
			s.announces(keyID)
		}
	}
	listed, err := one.file.List()
	require.NoError(t, err)
	both(listed[0].KeyID)
	var staged keyfile.KeyInfo
	for _, step := range []func() (keyfile.KeyInfo, error){
		func() (info keyfile.KeyInfo, err error) { staged, err = one.file.Stage(t.Context()); return },
		func() (keyfile.KeyInfo, error) { return two.file.Import(t.Context(), one.file.Path()) },
		func() (keyfile.KeyInfo, error) { return one.file.Activate(t.Context(), "") },
		func() (keyfile.KeyInfo, error) { return two.file.Activate(t.Context(), staged.ID) },
	} {
		_, err := step()
		require.NoError(t, err)
		for range 20 { // until what the step has done is seen, and beyond
			one.requireReads(two.encrypt())
			two.requireReads(one.encrypt())
		}
	}
	both(staged.KeyID)
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
	for _, part := range []string{old.KeyId, "bring it back", "another plugin"} {
		require.ErrorContains(t, err, part)
	}
}

// Two files whose only version has the same key bytes, but not the same id: what one
// wrapped is not what the other would have wrapped.
func TestTheKeyIDIsPartOfWhatIsAuthenticated(t *testing.T) {
	same := func(id byte) *kmsplugin.Keeper {
		random := bytes.NewReader(append(bytes.Repeat([]byte{id}, 16), bytes.Repeat([]byte{9}, 32)...))
		file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"), keyfile.WithRandom(random))
		_, err := file.Create(t.Context())
		require.NoError(t, err)
		return well(t, file, often())
	}
	one, two := same(1), same(2)
	sealed, err := one.Encrypt(t.Context(), "", dek)
	require.NoError(t, err)
	sealed.KeyID, err = two.Status(t.Context())
	require.NoError(t, err)
	_, err = two.Decrypt(t.Context(), "", sealed)
	require.ErrorIs(t, err, kmsplugin.ErrInvalid)
}
