package conformance

import (
	"context"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"
	kmsapi "k8s.io/kms/apis/v2"
)

func TestAKeyIsFoundInAnyForm(t *testing.T) {
	for range 20 { // a key has other letters, signs and folds each time
		requireFoundInAnyForm(t)
	}
}

func requireFoundInAnyForm(t *testing.T) {
	told := newTold()
	key := told.key()
	require.Len(t, key, 32)
	request, err := proto.Marshal(&kmsapi.EncryptRequest{Plaintext: key, Uid: "1"})
	require.NoError(t, err)
	index := 0
	for form, text := range map[string]string{
		"a dump of the request": hex.Dump(request), "a dump in JSON": fmt.Sprintf("%q", hex.Dump(request)),
		"xxd":          "00000000: 0a20 " + eachByte(key[:8], "%02x", " ") + "  . ..|......\n00000010: " + eachByte(key[8:], "%02x", ""),
		"a Uint8Array": "{" + regexp.MustCompile(`\d+`).ReplaceAllStringFunc(eachByte(key, "%d", ","), func(b string) string { index++; return fmt.Sprintf(`"%d":%s`, index, b) }) + "}",
		"strings":      eachByte(key, `"%02x"`, ","), "strings of Python": eachByte(key, `'0x%02x'`, ", "), "strings in JSON": eachByte(key, `\"%02x\"`, ","),
		"Perl": eachByte(key, `\x{%02x}`, ""), "HTML": eachByte(key, "&#%d;", ""), "HTML in hex": eachByte(key, "&#x%X;", ""), "HTML in JSON": eachByte(key, `\u0026#%d;`, ""),
		"surrogates of Python": eachByte(key, `\udc%02x`, ""), "octal": fmt.Sprintf("%o", key), "octal of Python": eachByte(key, "0o%o", ", "), "characters": fmt.Sprintf("%c", key), "bits": fmt.Sprintf("%b", key), "bits of Python": eachByte(key, "0b%b", ", "),
		"raw": string(key), "hex": hex.EncodeToString(key), "HEX": fmt.Sprintf("%X", key), "spaced": fmt.Sprintf("% x", key),
		"bytes of Go": fmt.Sprint(key), "JSON": fmt.Sprintf("%d", key), "quoted": fmt.Sprintf("%q", key),
		"base64": base64.StdEncoding.EncodeToString(key), "base64 in a URL": base64.URLEncoding.EncodeToString(key),
		"shifted by 1":    base64.StdEncoding.EncodeToString(append([]byte("a"), key...)),
		"shifted by 2":    base64.StdEncoding.EncodeToString(append([]byte("ab"), key...)),
		"shifted by 3":    base64.StdEncoding.EncodeToString(append([]byte("abc"), key...)),
		"shifted by 4":    base64.RawURLEncoding.EncodeToString(append([]byte("abcd"), key...)),
		"in JSON of .NET": strings.NewReplacer("+", `\u002B`).Replace(base64.StdEncoding.EncodeToString(key)), "in XML": strings.NewReplacer("+", "&#43;").Replace(base64.StdEncoding.EncodeToString(key)),
		"in a form": url.QueryEscape(base64.StdEncoding.EncodeToString(key)),
		"in JSON":   strings.ReplaceAll(base64.StdEncoding.EncodeToString(key), "/", `\/`),
		"protobuf":  eachByte(key, `\%03o`, ""), "protobuf in JSON": eachByte(key, `\\%03o`, ""),
		"Go's %#v": fmt.Sprintf("%#v", key), "upper": eachByte(key, "0x%02X", " "), "C": eachByte(key, `\x%02X`, ""),
		"Java": fmt.Sprint(signed(key)), "Java with commas": eachByte(signed(key), "%d", ", "), "lines": eachByte(key, "%d", ",\n    "),
		"JavaScript": eachByte(key, `\u00%02x`, ""), "Ruby": eachByte(key, `\u{%x}`, ""), "a URL": eachByte(key, "%%%02X", ""),
		"a fingerprint": eachByte(key, "%02X", ":"), "a dump": hex.Dump(key), "ISO-8859-1": eachByte(key, "%c", ""),
		"base32": base32.StdEncoding.EncodeToString(key), "base32hex": base32.HexEncoding.EncodeToString(key),
		"base32, lower and shifted": strings.ToLower(base32.StdEncoding.EncodeToString(append([]byte("abc"), key...))),
	} {
		assert.True(t, told.isIn([]byte("level=info plaintext="+text+" uid=1")), form)
		assert.NotContains(t, told.scrub("it said "+text), text, form)
	}
	for _, other := range []string{"", "level=info uid=1", base64.StdEncoding.EncodeToString(newTold().key()), string(newTold().key())} {
		require.False(t, told.isIn([]byte(other)))
		require.Equal(t, other, told.scrub(other))
	}
}

// eachByte prints one after the other.
func eachByte[T byte | int8](all []T, format, between string) string {
	var texts []string
	for _, b := range all {
		texts = append(texts, fmt.Sprintf(format, b))
	}
	return strings.Join(texts, between)
}

// signed are the bytes of Java.
func signed(key []byte) (all []int8) {
	for _, b := range key {
		all = append(all, int8(b))
	}
	return all
}

func TestWhatAKeyIDShows(t *testing.T) {
	for id, want := range map[string]string{
		"https://vault.example.com:8200/v1/transit/keys/k8s":                 "an address with a scheme",
		"vault.example.com:8200":                                             "a host with a port",
		"kms-10.0.0.1-3":                                                     "an IPv4 address",
		"arn:aws:kms:eu-central-1:123456789012:key/1":                        "the ARN of a resource",
		"projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1": "the path of a resource",
		"hvs.CAESIJ1q2w3e4r5t6z7u8i9o0p":                                     "a token of Vault",
		"1.2.3.4:8200":                                                       "an IPv4 address",
		"kms@1.2.3.4":                                                        "an IPv4 address",
		"192.168.1.2":                                                        "an IPv4 address",
		"kms.internal:443/k":                                                 "a host with a port",
		"password=secret":                                                    "a password",
		"db-password:1234":                                                   "a password",
		"client_secret=q1w2e3r4":                                             "a password",
		"pin=1234":                                                           "a password",
		"pkcs11:token=t;object=kek?pin-value=1234":                           "a password",
		"auth;token=s.q1w2e3r4t5y6u7i8o9p0aa":                                "a password",
		"s.q1w2e3r4t5y6u7i8o9p0aabb":                                         "a token of Vault",
		"kms-s.q1w2e3r4t5y6u7i8o9p0aabb":                                     "a token of Vault",
		"localhost:1":                                                        "this host",
		"kek@localhost":                                                      "this host",
		"[fd00::1]:8200":                                                     "an IPv6 address",
		"kms [::ffff:1.2.3.4]":                                               "an IPv6 address",
		"token=s.q1w2e3r4t5y6u7i8o9p0aa":                                     "a password",
		base64.StdEncoding.EncodeToString([]byte("\n\x02v1\x1a#\n!https://vault.example.com:8200")):  "an address with a scheme in base64",
		hex.EncodeToString([]byte("vault.example.com:8200/transit")):                                 "a host with a port in hex",
		"v1:" + base64.StdEncoding.EncodeToString([]byte("https://vault.example.com")):               "an address with a scheme in base64",
		"kms/" + base64.RawURLEncoding.EncodeToString([]byte("??>https://vault.example.com")) + ".3": "an address with a scheme in base64",
		"vault-" + hex.EncodeToString([]byte("https://vault.example.com")) + "-3":                    "an address with a scheme in hex",
	} {
		require.Equal(t, want, shows(id), id)
	}
	for _, fine := range []string{
		"1", "v1.2.3.4.5", "0f3a", "1.0f3ac2", "2026-01-31T12:00:00Z", "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
		"a1b2c3d4-e5f6-4a5b-8c7d-9e0f1a2b3c4d", "local-kek:3", "key/7", "300.300.300.300",
		"1.2.3.4", "aes-1.2.3.4-7", "v1.key:12", "prod.key:123", "softhsm-token:1", "secret:7", "pkcs11:token=softhsm;object=kek",
		"aes-1.2.3.4:7", "pkcs11:token=kubernetes-production-1;object=kek", "pkcs11:object=kek;token=kubernetes-production-1",
		"localhosts:3", "spin=1", "aes.0123456789abcdef01234567", "keys[1]:2", "[12:30]", "[2026-01-31T12:00:00]",
	} {
		require.Empty(t, shows(fine), fine)
	}
}

// What looks like an address in random bytes would be a failure now and then.
func TestAHashAsAKeyIDShowsNothing(t *testing.T) {
	for range 2000 {
		raw := random(32)
		for _, id := range []string{hex.EncodeToString(raw), base64.StdEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw)} {
			require.Empty(t, shows(id), id)
		}
	}
}

func sealedAs(ciphertexts ...string) (all []*sealed) {
	for _, c := range ciphertexts {
		all = append(all, &sealed{EncryptResponse: &kmsapi.EncryptResponse{Ciphertext: []byte(c)}})
	}
	return all
}

func TestHeadsTellKeysApart(t *testing.T) {
	v1, v10 := head(sealedAs("vault:v1:abc", "vault:v1:xyz")), head(sealedAs("vault:v10:def", "vault:v10:uvw"))
	require.Equal(t, "vault:v1:", string(v1))
	require.Equal(t, "vault:v10:", string(v10))
	require.True(t, tell(v1, v10, 10))
	require.True(t, madeBy(sealedAs("vault:v1:abx")[0], v1, v10))
	require.False(t, madeBy(sealedAs("vault:v1:abx")[0], v10, v1))
	require.False(t, madeBy(sealedAs("vault:v2:abx")[0], v10, v1), "nobody's")
	require.False(t, tell(v1, v10, 8), "what differs did not stay the same")
	require.False(t, tell(v1, v1, 9))
	require.False(t, tell(v1, nil, 9))
	require.False(t, tell([]byte("v1"), []byte("v1:2"), 9), "the one may go on as the other")
	require.Empty(t, head(nil))
}

func TestAStreamThatIsUsedTwiceShows(t *testing.T) {
	stream, a, b := random(32), random(32), random(32)
	require.Equal(t, differenceOf(a, b), differenceOf(differenceOf(a, stream), differenceOf(b, stream)))
	require.NotEqual(t, differenceOf(a, b), differenceOf(differenceOf(a, stream), differenceOf(b, random(32))))
}

func TestASocketIsThePluginsOrForTheUserWhoAsks(t *testing.T) {
	for _, test := range []struct {
		of, plugin, asks int
		another          bool
	}{{0, 1, 2, false}, {1, 1, 2, false}, {2, 1, 2, false}, {2, 0, 2, false}, {3, 1, 2, true}, {3, 0, 0, true}} {
		require.Equal(t, test.another, owner{uid: test.of}.isAnother(test.plugin, test.asks), test)
	}
}

func TestOthersReachWhatNoFolderKeepsThemFrom(t *testing.T) {
	folder := t.TempDir()
	below := filepath.Join(folder, "below")
	require.NoError(t, os.Mkdir(below, 0o755))
	require.NoError(t, os.Chmod(folder, 0o700))
	require.False(t, othersReach(below, nobody))
	require.True(t, othersReach("/", nobody))
}

// Many programs print all that they are set to when they start, before they come to the socket.
func TestASettingThatIsPrintedIsNoWordAboutTheSocket(t *testing.T) {
	s := &session{address: "/run/kms.sock"}
	for _, setting := range []string{
		`FLAG: --listen="unix:///run/kms.sock"`, "+ plugin serve --listen unix:///run/kms.sock", "plugin -l=/run/kms.sock -v 2",
		`msg=starting socket=/run/kms.sock`, `{"msg":"starting","listen":"unix:///run/kms.sock"}`, `{Listen:unix:///run/kms.sock Key:k}`, `"config {\"listen\": \"/run/kms.sock\"}"`,
		`{"msg":"running","args":["plugin","--listen=unix:///run/kms.sock"]}`, `{"args":["plugin","--listen","unix:///run/kms.sock","-v"]}`, `os.Args ["plugin" "-l" "/run/kms.sock"]`,
	} {
		require.False(t, s.isNamed("exit status 1\n  --second| "+setting+"\n  --second| metrics: address already in use"), setting)
		require.True(t, s.isNamed(setting+"\nlisten unix /run/kms.sock: bind: address already in use"), setting)
	}
	for _, word := range []string{
		"listen unix /run/kms.sock: bind: address already in use", "somebody serves at /run/kms.sock", "waiting for unix:///run/kms.sock", "/run/kms.sock: in use",
		"another server holds /run/kms.sock.lock", `level=ERROR err="listen unix /run/kms.sock: bind: address already in use"`, `{"error":"/run/kms.sock: address in use"}`,
		"RuntimeError: Failed to bind to address unix:/run/kms.sock; errno 98", "it is in-use: /run/kms.sock",
	} {
		require.True(t, s.isNamed(word), word)
	}
}

// server speaks HTTP/2 on a socket, in its own way.
func server(t *testing.T, answer http.HandlerFunc) *session {
	return serverOf(t, func(conn net.Conn) { (&http2.Server{}).ServeConn(conn, &http2.ServeConnOpts{Handler: answer}) })
}

// serverOf has each connection served by a function.
func serverOf(t *testing.T, serve func(net.Conn)) *session {
	folder, err := os.MkdirTemp("", "kms")
	require.NoError(t, err)
	address := filepath.Join(folder, "kms.sock")
	listener, err := net.Listen("unix", address)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		require.NoError(t, os.RemoveAll(folder))
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return &session{Target: Target{Endpoint: "unix://" + address}, Options: Options{Timeout: time.Minute}.withDefaults(), address: address, told: newTold()}
}

func TestACallByHand(t *testing.T) {
	over := make(chan struct{})
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"is answered": {func(w http.ResponseWriter, r *http.Request) {
			request, err := io.ReadAll(r.Body)
			if err != nil || len(request) != 5+2+3 || r.Host != "localhost" || r.Header.Get("Grpc-Timeout") != "33m" {
				http.Error(w, "not what was sent", http.StatusBadRequest)
				return
			}
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write(make([]byte, 5))
			w.Header().Set("Grpc-Status", "0")
		}, ""},
		"is refused": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Grpc-Status", "14")
			w.Header().Set("Grpc-Message", "away")
		}, `gRPC code 14: "away"`},
		"is answered by a proxy": {func(http.ResponseWriter, *http.Request) {}, "an answer without a gRPC code: HTTP 200"},
		"goes on":                {func(http.ResponseWriter, *http.Request) { <-over }, errStillRunning.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, test.answer)
			wire, err := s.openWire(t.Context())
			require.NoError(t, err)
			defer wire.close()
			call, err := wire.begin(t.Context(), "Encrypt", &kmsapi.EncryptRequest{Plaintext: []byte("dek")}, 33*time.Millisecond)
			require.NoError(t, err)
			call.finish()
			patience := time.Minute
			if test.says == errStillRunning.Error() {
				patience = time.Second
			}
			err = call.wait(patience)
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.says)
		})
	}
	close(over)
}

// A server that does not end calls at their deadline is seen, whatever it tells a client.
func TestACallThatGoesOnAfterItsDeadlineIsSeen(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2.KeyManagementService/Status" {
			w.Header().Set("Grpc-Status", "14")
			return
		}
		<-over
	})
	s.Timeout = 3 * time.Second
	var err error
	s.client, err = newClient(s.address)
	require.NoError(t, err)
	defer s.close()
	seen := &trouble{well: sealedAs("c")[0]}
	require.NoError(t, seen.lookForCallsThatHang(t.Context(), s))
	require.GreaterOrEqual(t, len(seen.hung), 2) // and those that went before may keep Status out
	require.Regexp(t, "^Encrypt goes on .* after its deadline$", seen.hung[0])
	require.Regexp(t, "^Decrypt goes on .* after its deadline$", seen.hung[1])
}

// What waits in a socket that was passed on is taken by nobody.
func TestAConnectionThatNobodyAnswersIsNotTaken(t *testing.T) {
	s := server(t, func(http.ResponseWriter, *http.Request) {})
	require.True(t, s.takesConnections(t.Context(), nil))
	s.Timeout = 100 * time.Millisecond
	s.address += ".passed-on"
	listener, err := net.Listen("unix", s.address)
	require.NoError(t, err)
	require.False(t, s.takesConnections(t.Context(), nil))
	require.NoError(t, listener.Close())
	require.False(t, s.takesConnections(t.Context(), nil))
}

// agedServer answers pings, and tells a connection to go with the answer while they have an age.
func agedServer(t *testing.T, aged *atomic.Bool) *session {
	return serverOf(t, func(conn net.Conn) {
		defer conn.Close()
		_, _ = io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface)))
		framer := http2.NewFramer(conn, conn)
		_ = framer.WriteSettings()
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				return
			}
			if ping, ok := frame.(*http2.PingFrame); ok {
				_ = framer.WritePing(true, ping.Data)
				if aged.Load() {
					_ = framer.WriteGoAway(0, http2.ErrCodeNo, nil)
				}
			}
		}
	})
}

// endedWire is a connection that was told to go.
func endedWire(t *testing.T, s *session) *wire {
	w, err := s.openWire(t.Context())
	require.NoError(t, err)
	t.Cleanup(w.close)
	require.NoError(t, w.connection.Ping(t.Context()))
	require.NoError(t, eventually(t.Context(), time.Minute, w.isLeaving))
	return w
}

// A plugin that gives each connection an age does not leave for that.
func TestAConnectionThatEndsByItsAgeIsNoSignThatThePluginLeaves(t *testing.T) {
	var aged atomic.Bool
	s := agedServer(t, &aged)
	aged.Store(true)
	ignores := leaving{session: s, wire: endedWire(t, s), opened: time.Now()}.seen(t.Context())
	require.False(t, ignores(), "the next one ends too")
	require.False(t, ignores())

	old := endedWire(t, s)
	s.Timeout = 100 * time.Millisecond
	drains := leaving{session: s, wire: old, opened: time.Now()}.seen(t.Context())
	aged.Store(false)
	require.True(t, drains(), "the next one stays, as with another plugin in this one's place")

	s.Timeout = time.Minute
	aged.Store(true)
	gone := leaving{session: s, wire: endedWire(t, s), opened: time.Now()}.seen(t.Context())
	s.address += ".none"
	require.True(t, gone(), "nobody answers")
}

// What waits in a socket is not waited for where the old connection tells that the plugin leaves.
func TestWhoIsNotAnsweredIsNotWaitedForWhenThePluginLeaves(t *testing.T) {
	var aged atomic.Bool
	aged.Store(true)
	s := agedServer(t, &aged)
	old := endedWire(t, s)
	s.Timeout = time.Hour
	s.address += ".passed-on"
	listener, err := net.Listen("unix", s.address)
	require.NoError(t, err)
	defer listener.Close()
	require.False(t, s.takesConnections(t.Context(), old))
}

// A server that takes a connection and no call keeps nobody waiting for ever.
func TestACallThatIsNotTakenIsGivenUp(t *testing.T) {
	folder, err := os.MkdirTemp("", "kms")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	listener, err := net.Listen("unix", filepath.Join(folder, "kms.sock"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	s := &session{Options: Options{Timeout: time.Minute}, address: filepath.Join(folder, "kms.sock")}
	wire, err := s.openWire(context.Background())
	require.NoError(t, err)
	defer wire.close()
	wire.patience = 20 * time.Millisecond
	_, err = wire.begin(t.Context(), "Status", &kmsapi.StatusRequest{}, 0)
	require.Error(t, err)
}
