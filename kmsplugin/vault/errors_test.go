package vault_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
)

// everyCall is what each call of a session ends with, for a version that was wrapped under.
func everyCall(t *testing.T, s kmsplugin.Session, v kmsplugin.Version, ciphertext []byte) map[string]error {
	t.Helper()
	_, versions := s.Versions(t.Context())
	_, _, wrapped := s.Wrap(t.Context(), v, dek, []byte(v.KeyID()))
	return map[string]error{"keys": versions, "encrypt": wrapped, "decrypt": unwrap(t, s, v, ciphertext)}
}

func requireAll(t *testing.T, errs map[string]error, class error, text string) {
	t.Helper()
	for verb, err := range errs {
		require.ErrorIs(t, err, class, verb)
		require.ErrorContains(t, err, text, verb)
		require.ErrorContains(t, err, "vault at https://127.0.0.1:", verb)
		require.ErrorContains(t, err, "transit/"+verb+"/k", verb)
	}
}

func TestTroubleHasAClassAndARemedy(t *testing.T) {
	p := newPlace(t)
	s := open(t, p.transit(t))
	v := writer(t, s)
	ciphertext := wrap(t, s, v)
	all := func() map[string]error { t.Helper(); return everyCall(t, s, v, ciphertext) }

	p.Seal()
	requireAll(t, all(), kmsplugin.ErrUnavailable, "unseal it")
	p.Unseal()
	p.Down()
	requireAll(t, all(), kmsplugin.ErrUnavailable, "does it run")
	p.Up()
	p.Policy("plugin", `path "auth/token/lookup-self" { capabilities = ["read"] }`)
	requireAll(t, all(), kmsplugin.ErrDenied, "it is the policy")
	p.Policy("plugin", `path "transit/*" { capabilities = ["read", "update"] }`)
	requireWorks(t, s)
	p.Revoke(read(t, p.config.Auth.TokenFile))
	requireAll(t, all(), kmsplugin.ErrDenied, "logs in anew")
}

func TestAnswersOfANodeThatCannotHaveAClass(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	s := open(t, p.transit(t))
	v := writer(t, s)
	ciphertext := wrap(t, s, v)
	large := `{"data":{"x":"` + strings.Repeat("x", 2<<20) + `"}}`
	for name, test := range map[string]struct {
		status int
		body   string
		class  error
		text   string
		tries  int
	}{
		"a quota":            {429, `{"errors":["request path \"transit/keys/k\": rate limit quota exceeded"]}`, kmsplugin.ErrThrottled, "raise it", 1},
		"a DR standby":       {472, `{"errors":["path disabled in replication DR secondary mode"]}`, kmsplugin.ErrUnavailable, "cannot answer now", 2},
		"a standby":          {473, `{"errors":[]}`, kmsplugin.ErrUnavailable, "cannot answer now", 2},
		"a missing state":    {412, `{"errors":["required index state not present"]}`, kmsplugin.ErrUnavailable, "cannot answer now", 2},
		"no active node":     {503, `{"errors":["no active Vault instance found"]}`, kmsplugin.ErrUnavailable, "no active Vault", 2},
		"sealed":             {503, `{"errors":["Vault is sealed"]}`, kmsplugin.ErrUnavailable, "unseal it", 2},
		"a gateway":          {502, `<html>Bad Gateway</html>`, kmsplugin.ErrUnavailable, "502", 2},
		"an error within":    {500, `{"errors":["internal error"]}`, kmsplugin.ErrUnavailable, "see its log", 2},
		"another server":     {404, `<html>Not Found</html>`, kmsplugin.ErrUnavailable, "is this Vault", 1},
		"a login page":       {200, `<html>Welcome</html>`, kmsplugin.ErrUnavailable, "is something else at this address", 1},
		"half an answer":     {200, `{"data":{"ciphertext":"vault:v1`, kmsplugin.ErrUnavailable, "is something else", 1},
		"an empty answer":    {200, `{}`, nil, "", 0},
		"megabytes":          {200, large, kmsplugin.ErrUnavailable, "more than 1048576 bytes", 1},
		"no mount":           {404, `{"errors":["no handler for route \"transit/keys/k\". route entry not found."]}`, kmsplugin.ErrUnavailable, "vault secrets list", 1},
		"a version too new":  {400, `{"errors":["invalid ciphertext: version is too new"]}`, kmsplugin.ErrUnavailable, "lags", 2},
		"a version to come":  {400, `{"errors":["requested version for encryption is higher than the latest key version"]}`, kmsplugin.ErrUnavailable, "lags", 2},
		"a key that is gone": {400, `{"errors":["encryption key not found"]}`, kmsplugin.ErrUnknownKey, "backup of the key", 1},
		"anything else":      {400, `{"errors":["the moon is full"]}`, kmsplugin.ErrUnavailable, "400 ", 1},
		"lines and controls": {400, `{"errors":["one\n\u001b[31mtwo"]}`, kmsplugin.ErrUnavailable, "400 ", 1},
		"a version below":    {400, `{"errors":["no such key version"]}`, kmsplugin.ErrKeyDisabled, "min_decryption_version", 1},
	} {
		t.Run(name, func(t *testing.T) {
			defer faults.Clear()
			faults.Answer("transit/", test.status, test.body)
			before := faults.Requests("transit/decrypt")
			errs := everyCall(t, s, v, ciphertext)
			if test.class == nil {
				for verb, err := range errs {
					require.Error(t, err, verb)
				}
				return
			}
			requireAll(t, errs, test.class, test.text)
			require.Equal(t, test.tries, faults.Requests("transit/decrypt")-before)
			for _, err := range errs {
				require.Less(t, len(err.Error()), 1000)
				require.NotContains(t, err.Error(), "\n")
			}
		})
	}
	requireWorks(t, s)
}

func TestWhatVaultSaysIsRepeatedWhereThereIsNoDEK(t *testing.T) {
	p := newPlace(t)
	s := open(t, p.transit(t))
	v := writer(t, s)
	p.Faults().Answer("transit/", 400, `{"errors":["the moon is full\n\u001b[31mtoday"]}`)
	errs := everyCall(t, s, v, wrapped)
	require.ErrorContains(t, errs["keys"], "400 the moon is full")
	for _, verb := range []string{"encrypt", "decrypt"} {
		require.NotContains(t, errs[verb].Error(), "moon")
		require.ErrorContains(t, errs[verb], "not repeated")
	}
}

// wrapped looks like something that version 1 wrapped.
var wrapped = []byte("vault:v1:" + strings.Repeat("A", 80))

// repeats is a Vault, or what stands before it, that answers with what it was sent.
func repeats(t *testing.T, answer func(w http.ResponseWriter, body []byte)) kmsplugin.Session {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"data":{"ttl":0}}`)
			return
		}
		answer(w, body)
	}))
	t.Cleanup(server.Close)
	transit, err := vault.New(vault.Config{Address: server.URL, InsecureHTTP: true, Mount: "transit", Key: "k", Auth: vault.Auth{TokenFile: write(t, "hvs.token")}})
	require.NoError(t, err)
	return open(t, transit)
}

func TestADEKThatIsRepeatedIsInNoError(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString(dek)
	for name, answer := range map[string]func(w http.ResponseWriter, body []byte){
		"by Vault": func(w http.ResponseWriter, body []byte) {
			w.WriteHeader(400)
			_ = json.NewEncoder(w).Encode(map[string]any{"errors": []string{"invalid ciphertext: " + string(body)}})
		},
		"by a firewall": func(w http.ResponseWriter, body []byte) {
			w.WriteHeader(400)
			_ = json.NewEncoder(w).Encode(map[string]any{"errors": []string{"blocked: " + url.QueryEscape(string(body)) + string(body)}})
		},
		"in an address": func(w http.ResponseWriter, body []byte) {
			w.Header().Set("Location", "https://"+encoded+"/")
			w.WriteHeader(307)
		},
		"in what is not HTTP": func(w http.ResponseWriter, body []byte) {
			connection, _, err := w.(http.Hijacker).Hijack()
			if !assert.NoError(t, err) {
				return
			}
			connection.Write(append(body, "\r\n\r\n"...))
			connection.Close()
		},
		"in a header": func(w http.ResponseWriter, body []byte) {
			connection, _, err := w.(http.Hijacker).Hijack()
			if !assert.NoError(t, err) {
				return
			}
			fmt.Fprintf(connection, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", encoded)
			connection.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := repeats(t, answer)
			v := kmsplugin.Version{Kind: "vault-transit", Label: "1"}
			_, _, err := s.Wrap(t.Context(), v, dek, nil)
			require.Error(t, err)
			require.NotContains(t, err.Error(), encoded[:12])
			require.NotContains(t, err.Error(), url.QueryEscape(encoded)[:12])
			require.Error(t, unwrap(t, s, v, wrapped))
		})
	}
}

func TestACutConnectionIsTriedOnceMore(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	s := open(t, p.transit(t))
	v := writer(t, s)
	ciphertext := wrap(t, s, v)
	faults.Drop("transit/decrypt", 1)
	require.NoError(t, unwrap(t, s, v, ciphertext))
	faults.Drop("transit/decrypt", 2)
	before := faults.Requests("transit/decrypt")
	require.ErrorIs(t, unwrap(t, s, v, ciphertext), kmsplugin.ErrUnavailable)
	require.Equal(t, before+2, faults.Requests("transit/decrypt"))
	require.NoError(t, unwrap(t, s, v, ciphertext))
}

func TestALoginIsNeverTriedTwice(t *testing.T) {
	p := newPlace(t)
	logins["AppRole"](t, p)
	faults := p.Faults()
	faults.Drop("auth/approle/login", 1)
	_, err := p.transit(t).Open(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.Equal(t, 1, faults.Requests("auth/approle/login"), "it may have used up a secret-id")
}

func TestACallThatHangsEndsWithItsContext(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	s := open(t, p.transit(t))
	v := writer(t, s)
	ciphertext := wrap(t, s, v)
	faults.Hang("transit/decrypt")
	before := faults.Requests("transit/decrypt")
	ctx, late := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := s.Unwrap(ctx, v, ciphertext, []byte(v.KeyID()))
		ended <- err
	}()
	require.Eventually(t, func() bool { return faults.Requests("transit/decrypt") > before }, time.Minute, time.Millisecond)
	late(context.DeadlineExceeded)
	err := <-ended
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, before+1, faults.Requests("transit/decrypt"), "nothing is tried after the deadline")
	faults.Clear()
	require.NoError(t, unwrap(t, s, v, ciphertext))
}

func TestARedirectIsNotFollowed(t *testing.T) {
	p := newPlace(t)
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(other.Close)
	faults := p.Faults()
	s := open(t, p.transit(t))
	v := writer(t, s)
	ciphertext := wrap(t, s, v)
	faults.Redirect("transit/", other.URL)
	errs := everyCall(t, s, v, ciphertext)
	requireAll(t, errs, kmsplugin.ErrUnavailable, "sends callers elsewhere")
	require.ErrorContains(t, errs["keys"], "it names "+strings.TrimPrefix(other.URL, "http://"))
	require.Zero(t, asked, "the token goes nowhere else")
}

func TestTLSThatIsNotRightIsTold(t *testing.T) {
	p := newPlace(t)
	right := p.config
	for text, change := range map[string]func(){
		"give the CA file":     func() { p.config.TLS.CAFile = "" },
		"give the server name": func() { p.config.TLS.ServerName = "another.test" },
		"vault.test":           func() { p.config.Address = strings.Replace(p.Address, "127.0.0.1", "localhost", 1) },
	} {
		p.config = right
		change()
		_, err := p.transit(t).Open(t.Context())
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		require.ErrorContains(t, err, text)
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	p.config = right
	p.config.Address = strings.Replace(plain.URL, "http:", "https:", 1)
	_, err := p.transit(t).Open(t.Context())
	require.ErrorContains(t, err, "does not speak TLS")
}

func TestASecretThatVaultRepeatsIsNotShown(t *testing.T) {
	p := newPlace(t)
	for name, login := range logins {
		path, renew, _ := login(t, p)
		if path == "" {
			continue
		}
		renew()
		text := read(t, path)
		for _, status := range []int{400, 403, 500} {
			p.Faults().Answer("", status, fmt.Sprintf(`{"errors":["invalid secret_id %s"]}`, text))
			_, err := p.transit(t).Open(t.Context())
			require.Error(t, err, name)
			require.NotContains(t, err.Error(), text, name)
			require.Contains(t, err.Error(), "(redacted)", name)
		}
		p.Faults().Clear()
	}
}

func TestNoVerbShowsASecret(t *testing.T) {
	p := newPlace(t)
	path, _, _ := logins["AppRole, wrapped"](t, p)
	secretID := read(t, path)
	transit := p.transit(t)
	s := open(t, transit)
	requireWorks(t, s)
	for _, v := range []any{transit, s} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			shown := fmt.Sprintf(verb, v)
			require.NotContains(t, shown, secretID)
			require.NotContains(t, shown, "hvs.")
		}
	}
}

func TestTheHeadersAreThoseOfVault(t *testing.T) {
	var seen []http.Header
	v := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header)
		fmt.Fprint(w, `{"data":{"ttl":0}}`)
	}))
	t.Cleanup(v.Close)
	transit, err := vault.New(vault.Config{
		Address: v.URL, InsecureHTTP: true, Namespace: "admin/team/", AuthNamespace: "/admin", Mount: "transit", Key: "k",
		Auth: vault.Auth{TokenFile: write(t, "hvs.token")},
	})
	require.NoError(t, err)
	s := open(t, transit)
	_, err = s.Versions(t.Context())
	require.Error(t, err)
	require.Len(t, seen, 2)
	for i, namespace := range []string{"admin", "admin/team"} {
		require.Equal(t, namespace, seen[i].Get("X-Vault-Namespace"))
		require.Equal(t, "hvs.token", seen[i].Get("X-Vault-Token"))
		require.Equal(t, "true", seen[i].Get("X-Vault-Request"))
	}
}

func TestAVaultThatHeedsNoNamespacesIsRefused(t *testing.T) {
	p := newPlace(t)
	p.config.Namespace = "team"
	_, err := open(t, p.transit(t)).Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	require.ErrorContains(t, err, "leave the namespace team away")
}

func TestAVaultThatHeedsNoNamespacesIsRefusedWithOneOfTheLoginAlone(t *testing.T) {
	p := newPlace(t)
	p.config.Namespace, p.config.AuthNamespace = "/", "team"
	_, err := open(t, p.transit(t)).Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	require.ErrorContains(t, err, "leave the namespace team away")
}

// before puts something before Vault.
func (p *place) before(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	t.Helper()
	target, err := url.Parse(p.Address)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(t, p.CA)}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, proxy) }))
	t.Cleanup(server.Close)
	p.config.Address, p.config.InsecureHTTP, p.config.TLS = server.URL, true, vault.TLS{}
}

// unbound leaves associated_data away.
func unbound(w http.ResponseWriter, r *http.Request, next http.Handler) {
	var body map[string]any
	if json.NewDecoder(r.Body).Decode(&body) == nil {
		delete(body, "associated_data")
	}
	text, _ := json.Marshal(body)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	next.ServeHTTP(w, r)
}

func TestAVaultThatDoesNotBindADEKIsRefused(t *testing.T) {
	p := newPlace(t)
	p.Faults()
	p.before(t, unbound)
	_, err := open(t, p.transit(t)).Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	require.ErrorContains(t, err, "use Vault 1.13 or later")
}

// A Vault that is away for the one question that would tell is no better.
func TestNothingIsWrappedUntilItWasSeenThatVaultDoesWhatItIsAsked(t *testing.T) {
	for name, test := range map[string]struct {
		namespace, refusal string
		asks               func(r *http.Request) bool
		answer             func(w http.ResponseWriter, r *http.Request, next http.Handler)
	}{
		"bind": {"", "use Vault 1.13", func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/encrypt/") }, unbound},
		"heed a namespace": {"team", "leave the namespace team away", func(r *http.Request) bool {
			return strings.Contains(r.Header.Get("X-Vault-Namespace"), "atrest-looks")
		}, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			r.Header.Del("X-Vault-Namespace")
			next.ServeHTTP(w, r)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			away := true
			p.before(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if away && test.asks(r) {
					w.WriteHeader(http.StatusServiceUnavailable)
					fmt.Fprint(w, `{"errors":["Vault is sealed"]}`)
					return
				}
				test.answer(w, r, next)
			})
			p.config.Namespace = test.namespace
			s := open(t, p.transit(t))
			found, err := s.Versions(t.Context())
			require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
			require.ErrorContains(t, err, "until it was seen")
			require.Len(t, found.All, 1, "what was wrapped before unwraps")
			away = false
			_, err = s.Versions(t.Context())
			require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
			require.ErrorContains(t, err, test.refusal)
		})
	}
}

func pool(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM([]byte(read(t, file))))
	return pool
}

// What is no Vault may be one soon, behind a load balancer that starts: only a key that Vault tells of
// is a mistake.
func TestOnlyWhatVaultTellsIsAMistake(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	faults.Answer("transit/keys/k", 200, `{"data":{"ttl":0}}`)
	_, err := open(t, p.transit(t)).Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.NotErrorIs(t, err, vault.ErrMistake)
	require.ErrorContains(t, err, "is this Vault?")
	faults.Answer("transit/keys/k", 200, `{"data":{"type":"rsa-2048"}}`)
	_, err = open(t, p.transit(t)).Versions(t.Context())
	require.ErrorIs(t, err, vault.ErrMistake)
}
