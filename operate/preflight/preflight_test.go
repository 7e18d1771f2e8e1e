package preflight_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/envelope/kmsv1"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/operate/preflight"
)

func parse(t testing.TB, providers ...string) *config.Configuration {
	t.Helper()
	c, err := config.Parse([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"+
		"- resources: [secrets]\n  providers:\n  - "+strings.Join(providers, "\n  - ")+"\n"), config.Options{KMSv1: true})
	require.NoError(t, err)
	return c
}

const identity = "identity: {}"

func kms(version, name, endpoint string) string {
	return fmt.Sprintf("kms: {apiVersion: %s, name: %s, endpoint: %q, timeout: 1s}", version, name, endpoint)
}

func one(t testing.TB, c *config.Configuration) preflight.Result {
	t.Helper()
	results := preflight.Check(t.Context(), c, preflight.Options{})
	require.Len(t, results, 1)
	return results[0]
}

func TestAPluginThatWorks(t *testing.T) {
	plugin := faultplugin.Start(t)
	r := one(t, parse(t, kms("v2", "vault", plugin.Endpoint()), identity))
	require.Nil(t, r.Failure)
	require.Empty(t, r.Warnings)
	require.Equal(t, []string{"vault"}, r.Names)
	require.Equal(t, config.KMSv2, r.Kind)
	require.Equal(t, plugin.Endpoint(), r.Endpoint)
	require.True(t, r.Writes)
	require.Equal(t, envelope.HashKeyID("1"), r.KeyIDHash)
	require.Positive(t, r.Status)
	require.Positive(t, r.Encrypt)
	require.Positive(t, r.Decrypt)
	require.Equal(t, faultplugin.Calls{Status: 1, Encrypt: 1, Decrypt: 1}, plugin.Calls())
}

// A fault, what a plugin that is written with fails with, and whether one that
// is only read with does so too.
func TestFaults(t *testing.T) {
	long := strings.Repeat("x", 1025)
	for name, c := range map[string]struct {
		fault   func(*faultplugin.Behaviour)
		step    string
		problem envelope.Problem
		text    string
		reading bool
	}{
		"hangs":           {func(b *faultplugin.Behaviour) { b.Hang = true }, "status", envelope.TimedOut, "timeout", true},
		"status denied":   {func(b *faultplugin.Behaviour) { b.StatusErr = status.Error(codes.PermissionDenied, "no") }, "status", envelope.Denied, "the right to use the key", false},
		"unhealthy":       {func(b *faultplugin.Behaviour) { b.Healthz = "sealed" }, "status", envelope.Unhealthy, `"sealed"`, false},
		"another version": {func(b *faultplugin.Behaviour) { b.Version = "v3" }, "status", envelope.BadVersion, `"v3"`, false},
		"no key_id":       {func(b *faultplugin.Behaviour) { b.KeyID = "" }, "status", envelope.BadKeyID, "key_id is empty", false},
		"long key_id":     {func(b *faultplugin.Behaviour) { b.KeyID = long }, "status", envelope.BadKeyID, "longer than 1024", false},
		"encrypt fails":   {func(b *faultplugin.Behaviour) { b.EncryptErr = status.Error(codes.FailedPrecondition, "disabled") }, "encrypt", envelope.KeyDisabled, "enable the key", false},
		"key_ids differ":  {func(b *faultplugin.Behaviour) { b.EncryptKeyID = "2" }, "encrypt", envelope.Disagreement, envelope.HashKeyID("2"), false},
		"annotations":     {func(b *faultplugin.Behaviour) { b.Annotations = map[string][]byte{"bad": nil} }, "encrypt", envelope.BadAnswer, "cannot be stored", false},
		"decrypt fails":   {func(b *faultplugin.Behaviour) { b.DecryptErr = status.Error(codes.ResourceExhausted, "slow down") }, "decrypt", envelope.Throttled, "limit", true},
		"decrypt forgets": {func(b *faultplugin.Behaviour) { b.Forgotten = []string{"1"} }, "decrypt", envelope.Failed, "no KEK", true},
		"decrypt garbles": {func(b *faultplugin.Behaviour) { b.Garbage = []byte("something else") }, "decrypt", envelope.BadAnswer, "another DEK", true},
	} {
		t.Run(name, func(t *testing.T) {
			plugin := faultplugin.Start(t)
			plugin.Set(c.fault)

			r := one(t, parse(t, kms("v2", "vault", plugin.Endpoint())))
			require.NotNil(t, r.Failure)
			require.Equal(t, c.step, r.Failure.Step)
			require.Equal(t, c.problem, r.Failure.Problem)
			require.ErrorContains(t, r.Failure, c.text)
			require.NotContains(t, r.Failure.Text, long)
			require.Error(t, errors.Unwrap(r.Failure))

			r = one(t, parse(t, identity, kms("v2", "vault", plugin.Endpoint())))
			require.False(t, r.Writes)
			require.Equal(t, c.reading, r.Failure != nil)
			if !c.reading {
				require.NotEmpty(t, r.Warnings)
				require.Contains(t, r.Warnings[0], c.text)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	endpoint := faultplugin.New(t).Endpoint()
	for _, order := range [][]string{{kms("v2", "vault", endpoint), identity}, {identity, kms("v2", "vault", endpoint)}} {
		r := one(t, parse(t, order...))
		require.Equal(t, envelope.Unreachable, r.Failure.Problem)
		require.ErrorContains(t, r.Failure, "start the plugin, or correct the endpoint")
		require.Zero(t, r.Encrypt)
	}
}

func TestAnEndpointWithoutAPath(t *testing.T) {
	r := one(t, parse(t, kms("v2", "vault", "unix://")))
	require.Equal(t, "dial", r.Failure.Step)
	require.ErrorContains(t, r.Failure, "correct the endpoint")
}

func TestAPluginIsAskedOnceHoweverManyProvidersItHas(t *testing.T) {
	plugin, other := faultplugin.Start(t), faultplugin.Start(t)
	other.Heal("2")
	c := parse(t, kms("v2", "first", plugin.Endpoint()), kms("v2", "other", other.Endpoint()), kms("v2", "second", plugin.Endpoint()))
	results := preflight.Check(t.Context(), c, preflight.Options{})
	require.Len(t, results, 2)
	require.Equal(t, []string{"first", "second"}, results[0].Names)
	require.True(t, results[0].Writes)
	require.Equal(t, []string{"other"}, results[1].Names)
	require.False(t, results[1].Writes)
	require.Equal(t, 1, plugin.Calls().Status)
}

func TestOnePluginThatHangsDelaysNoOther(t *testing.T) {
	hangs, works := faultplugin.Start(t), faultplugin.Start(t)
	hangs.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	works.Heal("2")
	patient := strings.Replace(kms("v2", "hangs", hangs.Endpoint()), "timeout: 1s", "timeout: 1h", 1)
	c := parse(t, patient, kms("v2", "works", works.Endpoint()))
	done := make(chan []preflight.Result)
	go func() { done <- preflight.Check(t.Context(), c, preflight.Options{}) }()
	require.Eventually(t, func() bool { return works.Calls().Decrypt == 1 }, time.Minute, time.Millisecond)
	hangs.Kill()
	results := <-done
	require.NotNil(t, results[0].Failure)
	require.Nil(t, results[1].Failure)
}

// A plugin that is only read with and does not encrypt was not seen to decrypt.
func TestAPluginThatIsNotAskedToDecryptShowsNothing(t *testing.T) {
	plugin := faultplugin.Start(t)
	c := parse(t, identity, kms("v2", "vault", plugin.Endpoint()))
	require.NoError(t, preflight.Alone(t.Context(), c, "cp-1", "vault", ""))
	plugin.Set(func(b *faultplugin.Behaviour) { b.EncryptErr = status.Error(codes.FailedPrecondition, "disabled") })
	require.ErrorContains(t, preflight.Alone(t.Context(), c, "cp-1", "vault", ""), "it was not asked to decrypt: ")
}

func TestTwoPluginsWithOneKeyIDAreWarnedOf(t *testing.T) {
	first, second := faultplugin.Start(t), faultplugin.Start(t)
	c := parse(t, kms("v2", "first", first.Endpoint()), kms("v2", "second", second.Endpoint()))
	results := preflight.Check(t.Context(), c, preflight.Options{})
	require.Empty(t, results[0].Warnings)
	require.Len(t, results[1].Warnings, 1)
	require.Contains(t, results[1].Warnings[0], `the key_id of "first" too`)
	second.Heal("2")
	require.Empty(t, preflight.Check(t.Context(), c, preflight.Options{})[1].Warnings)
}

func TestNothingToAsk(t *testing.T) {
	require.Empty(t, preflight.Check(t.Context(), parse(t, identity), preflight.Options{}))
}

func TestTheDEKIsInNoResult(t *testing.T) {
	plugin := faultplugin.Start(t)
	plugin.Set(func(b *faultplugin.Behaviour) { b.Garbage = []byte("secret answer") })
	r := one(t, parse(t, kms("v2", "vault", plugin.Endpoint())))
	text, err := json.Marshal(r)
	require.NoError(t, err)
	all := fmt.Sprintf("%s %+v %+v", text, r, r.Failure)
	require.NotContains(t, all, "secret answer")
	require.NotContains(t, all, string(plugin.Secrets()[0]))
}

func TestWithoutRandomnessNothingIsWrapped(t *testing.T) {
	plugin := faultplugin.Start(t)
	c := parse(t, kms("v2", "vault", plugin.Endpoint()))
	r := preflight.Check(t.Context(), c, preflight.Options{Random: iotest.ErrReader(errors.New("dry"))})[0]
	require.ErrorContains(t, r.Failure, "dry")
	require.Zero(t, plugin.Calls().Encrypt)
}

func TestKeyIDs(t *testing.T) {
	writes, reads := faultplugin.Start(t), faultplugin.Start(t)
	writes.Heal("7")
	c := parse(t, kms("v2", "writes", writes.Endpoint()), kms("v2", "too", writes.Endpoint()), kms("v2", "reads", reads.Endpoint()))
	hashes, err := preflight.KeyIDs(t.Context(), c, preflight.Options{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"writes": envelope.HashKeyID("7"), "too": envelope.HashKeyID("7")}, hashes)
	require.Equal(t, faultplugin.Calls{Status: 1}, writes.Calls())
	require.Zero(t, reads.Calls())

	hashes, err = preflight.KeyIDs(t.Context(), parse(t, kms("v1", "one", writes.Endpoint())), preflight.Options{})
	require.NoError(t, err, "KMS v1 has no key_id to ask for")
	require.Empty(t, hashes)
	require.Equal(t, faultplugin.Calls{Status: 1}, writes.Calls())

	writes.Set(func(b *faultplugin.Behaviour) { b.Healthz = "sealed" })
	hashes, err = preflight.KeyIDs(t.Context(), c, preflight.Options{})
	require.ErrorContains(t, err, `"sealed"`)
	require.Empty(t, hashes)
}

func TestKMSv1(t *testing.T) {
	flip := func(b []byte) ([]byte, error) {
		flipped := make([]byte, len(b))
		for i := range b {
			flipped[i] = ^b[i]
		}
		return flipped, nil
	}
	same := func(b []byte) ([]byte, error) { return b, nil }
	none := func([]byte) ([]byte, error) { return nil, nil }
	fails := func([]byte) ([]byte, error) { return nil, status.Error(codes.Unavailable, "away") }
	for name, c := range map[string]struct {
		encrypt, decrypt func([]byte) ([]byte, error)
		step             string
		problem          envelope.Problem
	}{
		"works":             {flip, flip, "", ""},
		"does not wrap":     {same, same, "encrypt", envelope.BadAnswer},
		"answers nothing":   {none, flip, "encrypt", envelope.BadAnswer},
		"cannot wrap":       {fails, flip, "encrypt", envelope.Unreachable},
		"cannot unwrap":     {flip, fails, "decrypt", envelope.Unreachable},
		"unwraps otherwise": {flip, same, "decrypt", envelope.BadAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			dial := func(e envelope.Endpoint, timeout time.Duration, _ envelope.Recorder) (kmsv1.Plugin, error) {
				require.Equal(t, envelope.Endpoint("unix:///old.sock"), e)
				require.Equal(t, time.Second, timeout)
				return &faultplugin.V1{Wrap: c.encrypt, Unwrap: c.decrypt}, nil
			}
			r := preflight.Check(t.Context(), parse(t, kms("v1", "old", "unix:///old.sock")), preflight.Options{DialV1: dial})[0]
			require.Empty(t, r.KeyIDHash)
			require.Zero(t, r.Status)
			if c.step == "" {
				require.Nil(t, r.Failure)
				require.Positive(t, r.Decrypt)
				return
			}
			require.Equal(t, c.step, r.Failure.Step)
			require.Equal(t, c.problem, r.Failure.Problem)
		})
	}
}
