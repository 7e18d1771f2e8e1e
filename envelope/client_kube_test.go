package envelope_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// The cases of kube-apiserver's own tests of its gRPC client.

func TestASlowPluginAnswersWithinItsTimeoutOrNotAtAll(t *testing.T) {
	p := faultplugin.Start(t)
	p.Set(func(b *faultplugin.Behaviour) { b.Delay = 20 * time.Millisecond })
	patient := dial(t, p, never, nil)
	defer patient.Close()
	_, err := patient.Status(t.Context())
	require.NoError(t, err)

	p.Set(func(b *faultplugin.Behaviour) { b.Delay = never })
	hasty := dial(t, p, 20*time.Millisecond, nil)
	defer hasty.Close()
	_, err = hasty.Encrypt(t.Context(), []byte("key"))
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))

	p.Heal("1")
	none := dial(t, p, 0, nil)
	defer none.Close()
	_, err = none.Status(t.Context())
	require.Equal(t, codes.DeadlineExceeded, status.Code(err), "no time is no time, and no configuration has it")
}

func TestManyCallersShareOneConnection(t *testing.T) {
	p := faultplugin.Start(t)
	p.Set(func(b *faultplugin.Behaviour) { b.Annotations = map[string][]byte{"a.example.com": []byte("v")} })
	c := dial(t, p, never, nil)
	defer c.Close()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			key := fmt.Sprint("key ", i)
			w, err := c.Encrypt(t.Context(), []byte(key))
			assert.NoError(t, err)
			got, err := c.Decrypt(t.Context(), w)
			assert.NoError(t, err)
			assert.Equal(t, key, string(got))
		})
	}
	wg.Wait()
	require.Equal(t, faultplugin.Calls{Encrypt: 100, Decrypt: 100}, p.Calls())
}

// What Encrypt answered comes back to Decrypt as it was.
func TestAnswersComeBackWhole(t *testing.T) {
	p := faultplugin.Start(t)
	annotations := map[string][]byte{"a.example.com": []byte("v"), "b.example.com": {}}
	p.Set(func(b *faultplugin.Behaviour) { b.Annotations = annotations })
	c := dial(t, p, never, nil)
	defer c.Close()
	s, err := c.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, envelope.Status{Version: "v2", Healthz: "ok", KeyID: "1"}, s)
	w, err := c.Encrypt(t.Context(), []byte("key"))
	require.NoError(t, err)
	require.Equal(t, envelope.Wrapped{Ciphertext: []byte("a2V5"), KeyID: "1", Annotations: annotations}, w)
	got, err := c.Decrypt(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, "key", string(got))
}
