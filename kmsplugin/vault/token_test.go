package vault_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
)

// counted is a back end that counts how often it is opened.
type counted struct {
	kmsplugin.Backend
	opened atomic.Int32
}

func (c *counted) Open(ctx context.Context) (kmsplugin.Session, error) {
	c.opened.Add(1)
	return c.Backend.Open(ctx)
}

func TestALoginIsMadeAnewAsOftenAsItsTokenEnds(t *testing.T) {
	p := newPlace(t)
	short := role
	short.TTL, short.MaxTTL = 2*time.Second, 3*time.Second
	roleID := p.AppRole(short)
	p.config.Auth = vault.Auth{AppRole: &vault.AppRole{RoleID: roleID, SecretIDFile: write(t, p.SecretID(short.Name))}}
	c := &counted{Backend: p.transit(t)}
	k := plugintest.Keep(t, c, patient(kmsplugin.Config{Poll: 20 * time.Millisecond}))
	require.Eventually(t, func() bool { return c.opened.Load() > 3 }, time.Minute, 10*time.Millisecond)
	requireServes(t, k)
}

func TestATokenOfAFileThatHasEndedIsTold(t *testing.T) {
	p := newPlace(t)
	answer := p.Do(http.MethodPost, "auth/token/create", p.RootToken, map[string]any{"policies": []string{"plugin"}, "ttl": "2s", "explicit_max_ttl": "3s"})
	p.config.Auth.TokenFile = write(t, answer.JSON["auth"].(map[string]any)["client_token"].(string))
	k := keep(t, p.transit(t))
	require.Eventually(t, func() bool {
		_, err := k.Status(t.Context())
		return err != nil && strings.Contains(err.Error(), "write a new one there")
	}, time.Minute, time.Millisecond)
	rewrite(t, p.config.Auth.TokenFile, p.Token(time.Hour, "plugin"))
	requireServes(t, k)
}

// The token that there is works on; the new one may see the key, and not wrap with it.
func TestATokenThatMayOnlyReadTakesNoOthersPlace(t *testing.T) {
	p := newPlace(t)
	p.Policy("reads", `path "transit/keys/k" { capabilities = ["read"] }`)
	faults := p.Faults()
	transit := p.transit(t)
	config := patient(transit.Config())
	config.Poll = 10 * time.Millisecond
	k := plugintest.Keep(t, transit, config)
	requireServes(t, k)
	rewrite(t, p.config.Auth.TokenFile, p.Token(time.Hour, "reads"))
	before := faults.Requests("transit/encrypt")
	require.Eventually(t, func() bool { return faults.Requests("transit/encrypt") > before+3 }, time.Minute, time.Millisecond, "it is tried")
	for range 3 {
		requireServes(t, k)
		_, err := k.Status(t.Context())
		require.NoError(t, err)
	}
}

func TestAVersionInUseThatMinDecryptionPassesIsToldOnce(t *testing.T) {
	p := newPlace(t)
	s := open(t, p.transit(t))
	log := &bytes.Buffer{}
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log))))
	first := writer(t, s)
	p.Rotate("k")
	p.Rotate("k")
	wrap(t, s, first)
	for _, min := range []int{1, 2, 2, 3} {
		p.Config("k", "min_decryption_version", min)
		_, err := s.Versions(ctx)
		require.NoError(t, err)
		require.Equal(t, min > 1, log.Len() > 0)
	}
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "the second one was never wrapped under: %s", log)
	require.Contains(t, log.String(), first.KeyID())
	require.Contains(t, log.String(), "vault write transit/keys/k/config min_decryption_version=1")
}

// counting is a server that is not more than an answer, and counts its connections.
func counting(t *testing.T, answer string) (address string, connections *atomic.Int32) {
	t.Helper()
	connections = new(atomic.Int32)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, connections
}

func TestConnectionsAreKept(t *testing.T) {
	answer, err := json.Marshal(map[string]any{"data": map[string]any{"ttl": 0, "plaintext": dek}})
	require.NoError(t, err)
	address, connections := counting(t, string(answer))
	transit, err := vault.New(vault.Config{Address: address, InsecureHTTP: true, Mount: "transit", Key: "k", Auth: vault.Auth{TokenFile: write(t, "hvs.token")}})
	require.NoError(t, err)
	s := open(t, transit)
	v := kmsplugin.Version{Kind: "vault-transit", Label: "1"}
	ciphertext := []byte("vault:v1:" + strings.Repeat("A", 80))
	for range 100 {
		require.NoError(t, unwrap(t, s, v, ciphertext))
	}
	require.EqualValues(t, 1, connections.Load())
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 20 {
				_, err := s.Unwrap(t.Context(), v, ciphertext, nil)
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, connections.Load(), int32(32))
}
