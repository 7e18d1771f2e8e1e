package vault_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// A plugin starts on a Vault that answers reads of the key and decryptions, and no encryption in
// time.
func TestWhatWasWrappedUnwrapsAndNothingIsWrappedUntilASlowVaultIsTrusted(t *testing.T) {
	p := newPlace(t)
	direct := open(t, p.transit(t))
	v := writer(t, direct)
	ciphertext := wrap(t, direct, v)
	asked := make(chan struct{})
	once := sync.OnceFunc(func() { close(asked) })
	p.before(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.Contains(r.URL.Path, "/encrypt/") {
			_, _ = io.Copy(io.Discard, r.Body) // so that the end of the client is seen
			once()
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
	clock := clocktesting.NewFakeClock(time.Now())
	k, err := kmsplugin.NewKeeper(p.transit(t), kmsplugin.Config{CallTimeout: 500 * time.Millisecond, Clock: clock})
	require.NoError(t, err)
	looked := make(chan func() error)
	go func() { looked <- k.Start(t.Context()) }()
	<-asked
	clock.Step(499 * time.Millisecond) // the call of the look has not ended
	var stop func() error
	select {
	case stop = <-looked:
	case <-time.After(time.Minute):
		t.Error("the look does not end before the time of its call, and what it found is lost with that")
		clock.Step(time.Millisecond)
		stop = <-looked
	}
	defer func() { require.NoError(t, stop()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := k.Decrypt(ctx, "", kmsplugin.Sealed{Ciphertext: ciphertext, KeyID: v.KeyID()})
	require.NoError(t, err)
	require.Equal(t, dek, got)
	_, err = k.Encrypt(t.Context(), "", dek)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, "nothing is wrapped until it was seen that Vault binds a DEK")
	_, err = k.Status(t.Context())
	require.ErrorContains(t, err, "nothing is wrapped until it was seen that Vault binds a DEK")
}
