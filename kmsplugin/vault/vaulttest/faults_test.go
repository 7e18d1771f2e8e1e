package vaulttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
)

// faulty is a fake with a key of two versions.
func faulty(t *testing.T) (*vaulttest.Server, *vaulttest.Faults) {
	s := vaulttest.Start(t)
	f := s.Faults()
	s.CreateKey("k", "")
	s.Rotate("k")
	return s, f
}

// latest is the version of the key that a look at it tells.
func latest(s *vaulttest.Server) any { return s.Read("transit/keys/k")["latest_version"] }

func TestAnAnswerIsPutInTheWay(t *testing.T) {
	s, f := faulty(t)
	f.Answer("transit/", http.StatusTooManyRequests, `{"errors":["slow down"]}`)
	refused := s.Do(http.MethodGet, "transit/keys/k", s.RootToken, nil)
	require.Equal(t, http.StatusTooManyRequests, refused.Status)
	require.Equal(t, []any{"slow down"}, refused.JSON["errors"])
	require.Equal(t, http.StatusOK, s.Do(http.MethodGet, "sys/health", "", nil).Status, "other paths are well")
	f.Answer("transit/keys/", http.StatusOK, `{"data":`)
	require.Nil(t, s.Do(http.MethodGet, "transit/keys/k", s.RootToken, nil).JSON, "the newest counts")
	f.Clear()
	require.EqualValues(t, 2, latest(s))
}

func TestAStandbyLags(t *testing.T) {
	s, f := faulty(t)
	f.Lag("k", 1)
	shown := s.Read("transit/keys/k")
	require.EqualValues(t, 1, shown["latest_version"])
	require.Len(t, shown["keys"], 1)
	f.Clear()
	require.EqualValues(t, 2, latest(s))
}

func TestAStandbyIsBehindADeletedKey(t *testing.T) {
	s, f := faulty(t)
	lag := f.Behind("k")
	s.Delete("k")
	s.CreateKey("k", "")
	require.EqualValues(t, 1, latest(s))
	lag()
	require.EqualValues(t, 2, latest(s))
	f.Clear()
	require.EqualValues(t, 1, latest(s))
}

func TestACiphertextIsMislabelled(t *testing.T) {
	s, f := faulty(t)
	f.Mislabel("k", 1)
	wrapped := s.Write("transit/encrypt/k", map[string]any{"plaintext": text})
	require.Regexp(t, "^vault:v1:", wrapped["ciphertext"])
	f.Clear()
	require.Equal(t, http.StatusBadRequest, s.Do(http.MethodPost, "transit/decrypt/k", s.RootToken, wrapped).Status, "it is of version 2")
}

func TestARequestHangs(t *testing.T) {
	s, f := faulty(t)
	f.Hang("transit/keys/")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	ask := func(ctx context.Context) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Address+"/v1/transit/keys/k", nil)
		if err == nil {
			request.Header.Set("X-Vault-Token", s.RootToken)
			_, err = s.Client().Do(request)
		}
		ended <- err
	}
	go ask(ctx)
	require.Eventually(t, func() bool { return f.Requests("transit/keys/k") == 1+2 }, time.Minute, time.Millisecond, "after those that made the key")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	go ask(t.Context())
	require.Eventually(t, func() bool { return f.Requests("transit/keys/k") == 2+2 }, time.Minute, time.Millisecond)
	require.Empty(t, ended)
	f.Clear()
	require.NoError(t, <-ended)
}

func TestConnectionsAreCut(t *testing.T) {
	s, f := faulty(t)
	f.Drop("transit/encrypt/", 1)
	request := func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Address+"/v1/transit/encrypt/k", nil)
		if err != nil {
			return err
		}
		answer, err := s.Client().Do(r)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	require.Error(t, request())
	require.NoError(t, request(), "one alone")
}

func TestAStandbySendsElsewhere(t *testing.T) {
	s, f := faulty(t)
	f.Redirect("transit/", "https://active.test")
	client := *s.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := client.Get(s.Address + "/v1/transit/keys/k")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusTemporaryRedirect, answer.StatusCode)
	require.Equal(t, "https://active.test/v1/transit/keys/k", answer.Header.Get("Location"))
}

func TestAnAnswerIsChanged(t *testing.T) {
	s, f := faulty(t)
	f.Rewrite("transit/keys/k", func(status int, body []byte) (int, []byte) {
		assert.Equal(t, http.StatusOK, status)
		assert.True(t, json.Valid(body))
		return http.StatusTeapot, append(make([]byte, 0, len(body)/2), body[:len(body)/2]...)
	})
	answer := s.Do(http.MethodGet, "transit/keys/k", s.RootToken, nil)
	require.Equal(t, http.StatusTeapot, answer.Status)
	require.Nil(t, answer.JSON)
}

func TestLeasesEnd(t *testing.T) {
	s, f := faulty(t)
	token := s.Token(time.Hour, "default")
	look := func() int { return s.Do(http.MethodGet, "auth/token/lookup-self", token, nil).Status }
	require.Equal(t, http.StatusOK, look())
	f.Advance(time.Hour)
	require.Equal(t, http.StatusForbidden, look())

	role := s.AppRole(vaulttest.Role{Name: "r", TTL: time.Minute, MaxTTL: time.Hour})
	login := s.Do(http.MethodPost, "auth/approle/login", "", map[string]any{"role_id": role, "secret_id": s.SecretID("r")})
	token, _ = login.JSON["auth"].(map[string]any)["client_token"].(string)
	wrapping := s.WrappedSecretID("r", time.Minute)
	require.Equal(t, http.StatusOK, look())
	f.Advance(time.Minute)
	require.Equal(t, http.StatusForbidden, look())
	require.Equal(t, http.StatusBadRequest, s.Do(http.MethodPost, "sys/wrapping/unwrap", wrapping, nil).Status)
}

func TestARealVaultHasNoFaults(t *testing.T) {
	if s := vaulttest.Start(t); s.IsReal() {
		t.Run("it is skipped", func(t *testing.T) { s.For(t).Faults(); t.Error("it goes on") })
	}
}

func TestWhatIsDownAnswersNobody(t *testing.T) {
	s := vaulttest.Start(t)
	s.CreateKey("k", "")
	s.Down()
	_, err := s.Client().Get(s.Address + "/v1/sys/health")
	require.Error(t, err)
	require.False(t, errors.Is(err, context.DeadlineExceeded))
	s.Up()
	require.NotEmpty(t, s.Read("transit/keys/k"))
}
