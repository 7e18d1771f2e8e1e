package plugintest

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// Backend is a [kmsplugin.Service] that [Test] holds to what every one has to do.
type Backend struct {
	// Open makes the Service of keys that stay: each call is a restart of the plugin.
	Open func(t testing.TB) kmsplugin.Service
	// Rotate has the keys get a new version, while a Service is open, which shows it
	// within a minute; nil for a back end that is rotated elsewhere.
	Rotate func(t testing.TB)
}

// Test holds a back end to the promises of [kmsplugin.Service], over a real socket. What
// is its own, such as where it keeps its keys and what it says of trouble, is for tests
// of its own.
func Test(t *testing.T, b Backend) {
	for name, test := range map[string]func(*suite){
		"a key is wrapped and unwrapped":             (*suite).testRoundTrip,
		"an answer shows nothing and is never again": (*suite).testSecrecy,
		"what is damaged is invalid":                 (*suite).testDamage,
		"a key_id of nobody is not found":            (*suite).testUnknownKey,
		"a restart changes nothing":                  (*suite).testRestart,
		"many may call at once":                      (*suite).testConcurrency,
		"a rotation leaves what was wrapped":         (*suite).testRotation,
	} {
		t.Run(name, func(t *testing.T) {
			s := &suite{T: t, backend: b, endpoint: Endpoint(t)}
			s.start()
			test(s)
		})
	}
}

// suite is a back end that is served.
type suite struct {
	*testing.T
	backend  Backend
	endpoint string
	client   kmsapi.KeyManagementServiceClient
	stop     func()
}

func (s *suite) start() {
	s.stop = Serve(s, s.endpoint, s.backend.Open(s))
	s.client = Dial(s, s.endpoint)
	// On a busy machine it may still start.
	require.Eventually(s, func() bool {
		_, err := s.client.Status(s.Context(), &kmsapi.StatusRequest{})
		return err == nil
	}, time.Minute, time.Millisecond)
}

func (s *suite) keyID() string {
	s.Helper()
	answer, err := s.client.Status(s.Context(), &kmsapi.StatusRequest{})
	require.NoError(s, err)
	require.Equal(s, "ok", answer.Healthz)
	require.NotEmpty(s, answer.KeyId)
	return answer.KeyId
}

// key is one of n bytes, the same each time.
func key(n int) []byte { return bytes.Repeat([]byte("a key of 16 bytes"), n/16+1)[:n] }

func (s *suite) wrap(key []byte) *kmsapi.EncryptResponse {
	s.Helper()
	answer, err := s.client.Encrypt(s.Context(), &kmsapi.EncryptRequest{Plaintext: key, Uid: "write"})
	require.NoError(s, err)
	return answer
}

func (s *suite) unwrap(w *kmsapi.EncryptResponse) ([]byte, error) {
	answer, err := s.client.Decrypt(s.Context(), &kmsapi.DecryptRequest{
		Ciphertext: w.Ciphertext, KeyId: w.KeyId, Annotations: w.Annotations, Uid: "read",
	})
	return answer.GetPlaintext(), err
}

func (s *suite) requireUnwraps(w *kmsapi.EncryptResponse, want []byte) {
	s.Helper()
	got, err := s.unwrap(w)
	require.NoError(s, err)
	require.Equal(s, want, got)
}

func (s *suite) requireRefuses(w *kmsapi.EncryptResponse, code codes.Code, what string) {
	s.Helper()
	got, err := s.unwrap(w)
	require.Equal(s, code, status.Code(err), "%s: %v", what, err)
	require.Empty(s, got, what)
}

func (s *suite) testRoundTrip() {
	for _, n := range []int{1, 32, kmsplugin.MaxPlaintext} {
		w := s.wrap(key(n))
		require.Equal(s, s.keyID(), w.KeyId, "Status and Encrypt name the same")
		require.LessOrEqual(s, len(w.Ciphertext), kmsplugin.MaxCiphertext)
		s.requireUnwraps(w, key(n))
	}
}

func (s *suite) testSecrecy() {
	seen := map[string]bool{}
	for range 100 {
		w := s.wrap(key(32))
		require.False(s, seen[string(w.Ciphertext)], "the same key has to be wrapped to another answer each time")
		seen[string(w.Ciphertext)] = true
		require.NotContains(s, fmt.Sprintf("%s %s %s", w.Ciphertext, w.KeyId, w.Annotations), string(key(32)))
	}
}

func (s *suite) testDamage() {
	w := s.wrap(key(32))
	for i := range w.Ciphertext {
		damaged := bytes.Clone(w.Ciphertext)
		damaged[i] ^= 1
		s.requireRefuses(&kmsapi.EncryptResponse{Ciphertext: damaged, KeyId: w.KeyId, Annotations: w.Annotations}, codes.InvalidArgument, fmt.Sprintf("bit %d", 8*i))
	}
	for name, ciphertext := range map[string][]byte{
		"nothing": nil, "one byte": w.Ciphertext[:1], "cut": w.Ciphertext[:len(w.Ciphertext)-1], "longer": append(bytes.Clone(w.Ciphertext), 0),
	} {
		s.requireRefuses(&kmsapi.EncryptResponse{Ciphertext: ciphertext, KeyId: w.KeyId, Annotations: w.Annotations}, codes.InvalidArgument, name)
	}
	s.requireUnwraps(w, key(32))
}

func (s *suite) testUnknownKey() {
	w := s.wrap(key(32))
	s.requireRefuses(&kmsapi.EncryptResponse{Ciphertext: w.Ciphertext, KeyId: w.KeyId + "-of-nobody", Annotations: w.Annotations}, codes.NotFound, "an apiserver takes the plugin's word for it that the KEK is gone")
}

func (s *suite) testRestart() {
	before, w := s.keyID(), s.wrap(key(32))
	s.stop()
	s.start()
	require.Equal(s, before, s.keyID(), "a restart is no rotation")
	s.requireUnwraps(w, key(32))
}

func (s *suite) testConcurrency() {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 16 {
				want := key(1 + 16*i + n)
				w, err := s.client.Encrypt(s.Context(), &kmsapi.EncryptRequest{Plaintext: want})
				if !assert.NoError(s, err) {
					return
				}
				got, err := s.unwrap(w)
				assert.NoError(s, err)
				assert.Equal(s, want, got)
			}
		})
	}
	all.Wait()
}

func (s *suite) testRotation() {
	if s.backend.Rotate == nil {
		s.Skip("this back end is rotated elsewhere")
	}
	wrapped, seen := []*kmsapi.EncryptResponse{s.wrap(key(32))}, map[string]bool{s.keyID(): true}
	for range 3 {
		s.backend.Rotate(s)
		now := s.keyID()
		for began := time.Now(); seen[now] && time.Since(began) < time.Minute; now = s.keyID() {
			time.Sleep(time.Millisecond)
		}
		require.False(s, seen[now], "a key_id names one KEK for ever, and a new one shows in time")
		seen[now] = true
		w := s.wrap(key(32))
		require.Equal(s, now, w.KeyId)
		s.requireRefuses(&kmsapi.EncryptResponse{Ciphertext: w.Ciphertext, KeyId: wrapped[0].KeyId, Annotations: w.Annotations},
			codes.InvalidArgument, "what was wrapped under one key_id is not unwrapped under another")
		wrapped = append(wrapped, w)
	}
	s.stop()
	s.start()
	for _, w := range wrapped {
		s.requireUnwraps(w, key(32))
	}
}
