package preflight_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/envelope/kmsv1"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/operate/preflight"
)

// A scripted plugin answers what a test says, at once, and takes a while for it.
// It is for one connection.
type scripted struct {
	envelope.Plugin
	clock   *testingclock.FakeClock
	encrypt func(dek []byte) envelope.Wrapped
	dek     []byte // as Encrypt was given it
	given   []byte // the very memory of what Decrypt answered
	dialled []envelope.Endpoint
	closed  int
	fails   error
	keyID   string // that Status names
}

// masked is an answer to Encrypt without a fault.
func masked(dek []byte) envelope.Wrapped {
	return envelope.Wrapped{Ciphertext: bytes.Repeat([]byte("w"), len(dek)), KeyID: "1"}
}

func newScripted() *scripted {
	return &scripted{clock: testingclock.NewFakeClock(time.Unix(0, 0)), encrypt: masked, keyID: "1"}
}

func (s *scripted) Status(context.Context) (envelope.Status, error) {
	s.clock.Step(time.Second)
	return envelope.Status{Version: "v2", Healthz: "ok", KeyID: s.keyID}, s.fails
}

func (s *scripted) Encrypt(_ context.Context, dek []byte) (envelope.Wrapped, error) {
	s.clock.Step(time.Minute)
	s.dek = bytes.Clone(dek)
	return s.encrypt(dek), s.fails
}

func (s *scripted) Decrypt(context.Context, envelope.Wrapped) ([]byte, error) {
	s.clock.Step(time.Hour)
	s.given = bytes.Clone(s.dek)
	return s.given, s.fails
}

func (s *scripted) Close() error { s.closed++; return nil }

func (s *scripted) options() preflight.Options {
	return preflight.Options{
		Clock:  s.clock,
		Random: strings.NewReader(strings.Repeat("a DEK of thirty-two random bytes", 9)),
		Dial: func(e envelope.Endpoint, _ time.Duration, _ envelope.Recorder) (envelope.Plugin, error) {
			s.dialled = append(s.dialled, e)
			return s, nil
		},
	}
}

func TestEachCallIsTimedAndTheConnectionClosed(t *testing.T) {
	s := newScripted()
	r := preflight.Check(t.Context(), parse(t, kms("v2", "vault", "unix:///vault.sock")), s.options())[0]
	require.Nil(t, r.Failure)
	require.Equal(t, []time.Duration{time.Second, time.Minute, time.Hour}, []time.Duration{r.Status, r.Encrypt, r.Decrypt})
	require.Equal(t, 1, s.closed)
	require.Equal(t, "a DEK of thirty-two random bytes", string(s.dek))
	require.Equal(t, make([]byte, len(s.dek)), s.given, "what was unwrapped is overwritten")

	_, err := preflight.KeyIDs(t.Context(), parse(t, kms("v2", "vault", "unix:///vault.sock")), s.options())
	require.NoError(t, err)
	require.Equal(t, 2, s.closed)
}

// Such a plugin answers every call well, and encrypts nothing.
func TestAPluginThatGivesTheDEKInTheClearFails(t *testing.T) {
	inside := func(dek []byte) []byte { return append([]byte("prefix"), dek...) }
	for name, encrypt := range map[string]func([]byte) envelope.Wrapped{
		"as the ciphertext":       func(dek []byte) envelope.Wrapped { return envelope.Wrapped{Ciphertext: dek, KeyID: "1"} },
		"inside the ciphertext":   func(dek []byte) envelope.Wrapped { return envelope.Wrapped{Ciphertext: inside(dek), KeyID: "1"} },
		"inside an annotation":    annotated(func(dek []byte) (string, []byte) { return "a.example", inside(dek) }),
		"in an annotation's name": annotated(func(dek []byte) (string, []byte) { return "a." + string(dek), nil }),
		"in the key_id": func(dek []byte) envelope.Wrapped {
			w := masked(dek)
			w.KeyID = string(inside(dek))
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted()
			s.encrypt = encrypt
			r := preflight.Check(t.Context(), parse(t, kms("v2", "vault", "unix:///vault.sock")), s.options())[0]
			require.NotNil(t, r.Failure)
			require.Equal(t, envelope.BadAnswer, r.Failure.Problem)
			require.ErrorContains(t, r.Failure, "gave the DEK back in the clear")
			require.NotContains(t, r.Failure.Text, string(s.dek))
		})
	}
}

func annotated(entry func(dek []byte) (string, []byte)) func([]byte) envelope.Wrapped {
	return func(dek []byte) envelope.Wrapped {
		w := masked(dek)
		name, value := entry(dek)
		w.Annotations = map[string][]byte{name: value}
		return w
	}
}

func TestWhatAPluginSaysIsOneShortLine(t *testing.T) {
	s := newScripted()
	s.fails = status.Error(codes.PermissionDenied, strings.Repeat("a line of many\n", 100_000))
	r := preflight.Check(t.Context(), parse(t, kms("v2", "vault", "unix:///vault.sock")), s.options())[0]
	require.Equal(t, envelope.Denied, r.Failure.Problem)
	require.Less(t, len(r.Failure.Text), 2000)
	require.NotContains(t, r.Failure.Text, "\n")
	require.ErrorContains(t, r.Failure, "give the plugin's identity the right to use the key")
}

// Without all of its randomness a DEK is not made, and nobody is asked to wrap
// what there is of it.
func TestADEKNeedsAllItsRandomness(t *testing.T) {
	for enough := range 32 {
		for _, version := range []string{"v1", "v2"} {
			s := newScripted()
			options := s.options()
			options.Random = io.MultiReader(bytes.NewReader(make([]byte, enough)), iotest.ErrReader(errors.New("dry")))
			options.DialV1 = func(envelope.Endpoint, time.Duration, envelope.Recorder) (kmsv1.Plugin, error) {
				return &faultplugin.V1{Wrap: func(dek []byte) ([]byte, error) { s.dek = dek; return nil, nil }}, nil
			}
			r := preflight.Check(t.Context(), parse(t, kms(version, "vault", "unix:///vault.sock")), options)[0]
			require.NotNil(t, r.Failure)
			require.Equal(t, "make a DEK", r.Failure.Step)
			require.ErrorContains(t, r.Failure, "dry")
			require.Nil(t, s.dek)
		}
	}
}

func TestAPluginIsOneByItsSocketItsVersionAndItsTimeout(t *testing.T) {
	options := preflight.Options{
		Dial: func(envelope.Endpoint, time.Duration, envelope.Recorder) (envelope.Plugin, error) {
			return newScripted(), nil
		},
		DialV1: func(envelope.Endpoint, time.Duration, envelope.Recorder) (kmsv1.Plugin, error) {
			return nil, errors.New("no v1 here")
		},
	}
	patient := strings.Replace(kms("v2", "patient", "unix:///vault.sock"), "timeout: 1s", "timeout: 2s", 1)
	results := preflight.Check(t.Context(), parse(t, kms("v2", "one", "unix:///vault.sock"), patient,
		kms("v1", "old", "unix:///vault.sock"), kms("v2", "two", "unix:///vault.sock"),
		kms("v2", "same", "unix://localhost/vault.sock"), kms("v2", "other", "unix:///other.sock")), options)
	var names [][]string
	for _, r := range results {
		names = append(names, r.Names)
	}
	require.Equal(t, [][]string{{"one", "two", "same"}, {"patient"}, {"old"}, {"other"}}, names)
	require.ErrorContains(t, results[2].Failure, "no v1 here")
}

func TestAnAbstractSocketIsDialledAsOne(t *testing.T) {
	s := newScripted()
	preflight.Check(t.Context(), parse(t, kms("v2", "vault", "unix:///@vault")), s.options())
	require.Equal(t, []envelope.Endpoint{"unix:///@vault"}, s.dialled)
}

func TestAPluginOfKMSv1IsDialledToo(t *testing.T) {
	patient := strings.Replace(kms("v1", "old", "unix:///nobody/is/here.sock"), "timeout: 1s", "timeout: 1m", 1)
	r := one(t, parse(t, patient))
	require.Equal(t, "encrypt", r.Failure.Step)
	require.Equal(t, envelope.Unreachable, r.Failure.Problem)
}

// Of several plugins: those that name no key_id share none, and a third is
// compared as the second is.
func TestPluginsThatShareAKEKAreFoundWhereverTheyStand(t *testing.T) {
	keyIDs := []string{"", "1", "", "1", "2", "1", "2"}
	var providers []string
	for i := range keyIDs {
		providers = append(providers, kms("v2", fmt.Sprintf("p%d", i), fmt.Sprintf("unix:///%d.sock", i)))
	}
	results := preflight.Check(t.Context(), parse(t, providers...), preflight.Options{
		Dial: func(e envelope.Endpoint, _ time.Duration, _ envelope.Recorder) (envelope.Plugin, error) {
			s := newScripted()
			s.keyID = keyIDs[e[len("unix:///")]-'0']
			return s, nil
		},
	})
	for i, want := range []string{"", "", "", `"p1"`, "", `"p1"`, `"p4"`} {
		all := strings.Join(results[i].Warnings, "; ")
		require.Equal(t, want != "", strings.Contains(all, "it has the key_id of"), "p%d: %s", i, all)
		require.Contains(t, all, want)
	}
}

// meeting is a plugin that answers once all others were asked too.
type meeting struct {
	*scripted
	asked *sync.WaitGroup
}

func (m meeting) Status(ctx context.Context) (envelope.Status, error) {
	m.asked.Done()
	m.asked.Wait()
	return m.scripted.Status(ctx)
}

func TestAllPluginsAreAskedForTheirKeyIDsAtOnce(t *testing.T) {
	var text strings.Builder
	text.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n")
	for i, resource := range []string{"secrets", "configmaps", "pods"} {
		fmt.Fprintf(&text, "- {resources: [%s], providers: [%s]}\n", resource, kms("v2", fmt.Sprint("p", i), fmt.Sprintf("unix:///%d.sock", i)))
	}
	c, err := config.Parse([]byte(text.String()), config.Options{})
	require.NoError(t, err)
	var asked sync.WaitGroup
	asked.Add(3)
	hashes, err := preflight.KeyIDs(t.Context(), c, preflight.Options{
		Dial: func(envelope.Endpoint, time.Duration, envelope.Recorder) (envelope.Plugin, error) {
			return meeting{newScripted(), &asked}, nil
		},
	})
	require.NoError(t, err)
	require.Len(t, hashes, 3)
}

func TestKeyIDsOfAPluginThatIsNotDialledAreAnError(t *testing.T) {
	c := parse(t, kms("v2", "vault", "unix:///vault.sock"))
	hashes, err := preflight.KeyIDs(t.Context(), c, preflight.Options{
		Dial: func(envelope.Endpoint, time.Duration, envelope.Recorder) (envelope.Plugin, error) {
			return nil, errors.New("no such socket")
		},
	})
	require.ErrorContains(t, err, "no such socket")
	require.Empty(t, hashes)
}
