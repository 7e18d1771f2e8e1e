package audit_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/operate/audit"
)

var secrets = schema.GroupResource{Resource: "secrets"}

func opener(t testing.TB, c *config.Configuration) *audit.Opener {
	t.Helper()
	o, err := audit.NewOpener(c)
	require.NoError(t, err)
	t.Cleanup(o.Close)
	return o
}

// under are n objects, each under a DEK of its own.
func under(t testing.TB, c *config.Configuration, n int) []audit.Object {
	var all []audit.Object
	for i := range n {
		key := fmt.Sprintf("/registry/secrets/default/%d", i)
		all = append(all, audit.Object{Key: key, Value: write(t, c).seal("secrets", key, "{secret}")})
	}
	return all
}

func TestAWalkProvesThatEachObjectOpens(t *testing.T) {
	plugin := faultplugin.Start(t)
	c := parse(t, "secrets", kmsV2("vault", plugin.Endpoint()), keyed("aesgcm", "key"), identity)
	w := write(t, parse(t, "secrets", keyed("aesgcm", "key")))
	stored := memory{
		"/registry/secrets/a": write(t, c).seal("secrets", "/registry/secrets/a", "{}"),
		"/registry/secrets/b": w.seal("secrets", "/registry/secrets/b", "{}"),
		"/registry/secrets/c": w.seal("secrets", "/registry/secrets/moved", "{}"),
		"/registry/secrets/d": []byte("{}"),
		"/registry/secrets/e": []byte("damaged"),
		"/registry/pods/a":    []byte("{}"),
		"/registry/pods/b":    w.seal("secrets", "/registry/pods/b", "{}"),
	}
	o := opener(t, c)
	r := run(t, stored, audit.Options{Open: o.Open})
	require.True(t, r.Opened)
	require.Equal(t, int64(2), notOpened(r))
	require.Len(t, r.Problems, 3)
	require.Equal(t, "/registry/secrets/e", r.Problems[0].Key, "not tried, as it is no object")
	require.Equal(t, "/registry/pods/b", r.Problems[1].Key)
	require.Contains(t, r.Problems[1].Why, "no matching prefix found")
	require.Equal(t, "/registry/secrets/c", r.Problems[2].Key)
	require.Contains(t, r.Problems[2].Why, "was moved to another etcd key")
}

// notOpened is how many objects did not open.
func notOpened(r *audit.Report) (n int64) {
	for _, resource := range r.Resources {
		for _, c := range resource.Forms {
			n += c.NotOpened
		}
	}
	return n
}

func TestOpeningCallsDecryptOnceForEachDEKAndNothingElse(t *testing.T) {
	plugin := faultplugin.Start(t)
	c := parse(t, "secrets", kmsV2("vault", plugin.Endpoint()))
	objects := under(t, c, 2)
	before := plugin.Calls()
	o := opener(t, c)
	for range 5 {
		for _, object := range objects {
			require.NoError(t, o.Open(t.Context(), secrets, object))
		}
	}
	o.Close()
	after := plugin.Calls()
	require.Equal(t, 2, after.Decrypt-before.Decrypt)
	require.Equal(t, before.Encrypt, after.Encrypt)
	require.Equal(t, before.Status, after.Status)
}

func TestADEKThatDoesNotUnwrapIsAskedForOnce(t *testing.T) {
	for _, code := range []codes.Code{codes.PermissionDenied, codes.NotFound, codes.InvalidArgument} {
		plugin := faultplugin.Start(t)
		c := parse(t, "secrets", kmsV2("vault", plugin.Endpoint()))
		object := under(t, c, 1)[0]
		plugin.Set(func(b *faultplugin.Behaviour) { b.DecryptErr = status.Error(code, "no") })
		before := plugin.Calls().Decrypt
		o := opener(t, c)
		first := o.Open(t.Context(), secrets, object)
		require.Error(t, first)
		for range 5 {
			require.ErrorContains(t, o.Open(t.Context(), secrets, object), "another object under the same DEK")
		}
		require.Equal(t, before+1, plugin.Calls().Decrypt)
	}
}

func TestAPluginThatIsAwayIsGivenUp(t *testing.T) {
	plugin := faultplugin.Start(t)
	c := parse(t, "secrets", kmsV2("vault", plugin.Endpoint()), keyed("aesgcm", "key"))
	objects := under(t, c, 6)
	before := plugin.Calls().Decrypt
	o := opener(t, c)
	require.NoError(t, o.Open(t.Context(), secrets, objects[0]))
	plugin.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	for _, object := range objects[1:] {
		require.ErrorIs(t, o.Open(t.Context(), secrets, object), envelope.ErrUnavailable)
	}
	require.ErrorContains(t, o.Open(t.Context(), secrets, audit.Object{Key: "/x", Value: under(t, parse(t, "secrets", kmsV2("vault", faultplugin.Start(t).Endpoint())), 1)[0].Value}),
		"failed 3 times in a row")
	require.Equal(t, before+1+1, plugin.Calls().Decrypt, "a plugin that hangs is waited for once")
	require.NoError(t, o.Open(t.Context(), secrets, objects[0]), "its DEK is known")
	local := audit.Object{Key: "/registry/secrets/l"}
	local.Value = write(t, parse(t, "secrets", keyed("aesgcm", "key"))).seal("secrets", local.Key, "{}")
	require.NoError(t, o.Open(t.Context(), secrets, local))
}

func TestAnAnswerInBetweenIsAnotherChance(t *testing.T) {
	plugin := faultplugin.Start(t)
	c := parse(t, "secrets", kmsV2("vault", plugin.Endpoint()))
	objects := under(t, c, 5)
	before := plugin.Calls().Decrypt
	o := opener(t, c)
	fail := func(err error) { plugin.Set(func(b *faultplugin.Behaviour) { b.DecryptErr = err }) }
	for i, object := range objects {
		var err error
		if i != 2 {
			err = status.Error(codes.Unavailable, "away")
		}
		fail(err)
		require.Equal(t, i != 2, o.Open(t.Context(), secrets, object) != nil)
	}
	require.Equal(t, before+5, plugin.Calls().Decrypt, "never three in a row")
}

// A plugin of Vault answers so of each version below min_decryption_version, and unwraps with others.
func TestAKeyThatIsDisabledIsNoReasonToGiveUpOthers(t *testing.T) {
	plugin := faultplugin.Start(t)
	c := parse(t, "secrets", kmsV2("vault", plugin.Endpoint()))
	o := opener(t, c)
	for i, object := range under(t, c, 5) {
		var err error
		if i < 4 {
			err = status.Error(codes.FailedPrecondition, "below the minimum")
		}
		plugin.Set(func(b *faultplugin.Behaviour) { b.DecryptErr = err })
		switch err := o.Open(t.Context(), secrets, object); {
		case i < 4:
			require.ErrorContains(t, err, "below the minimum")
		default:
			require.NoError(t, err)
		}
	}
}

func TestOpenLocalAsksNoPlugin(t *testing.T) {
	plugin := faultplugin.Start(t)
	c := parse(t, "secrets", kmsV2("vault", plugin.Endpoint()), keyed("aesgcm", "key"))
	object := under(t, c, 1)[0]
	before := plugin.Calls()
	o := opener(t, c)
	require.ErrorIs(t, o.OpenLocal(t.Context(), secrets, object), audit.ErrNotTried)
	require.Equal(t, before, plugin.Calls())
	require.Error(t, o.OpenLocal(t.Context(), secrets, audit.Object{Key: "/a", Value: []byte("{}")}), "no identity")
}

func TestRecoverTriesTheProvidersOfOtherRules(t *testing.T) {
	c := parseRules(t, rule("pods", identity), rule("configmaps", keyed("aesgcm", "b")), rule("secrets", keyed("aesgcm", "a")))
	w := write(t, c)
	o := opener(t, c)
	const key = "/registry/x"
	for sealedAs, want := range map[string]string{"secrets": "secrets", "configmaps": "configmaps"} {
		plain, with, err := o.Recover(t.Context(), secrets, audit.Object{Key: key, Value: w.seal(sealedAs, key, "{value}")})
		require.NoError(t, err)
		require.Equal(t, "{value}", string(plain))
		require.Equal(t, want, with.String())
	}
	gone := write(t, parse(t, "secrets", keyed("aesgcm", "gone"))).seal("secrets", key, "{}")
	_, _, err := o.Recover(t.Context(), secrets, audit.Object{Key: key, Value: gone})
	require.ErrorContains(t, err, `stored with aesgcm, key "gone"`)
	require.ErrorContains(t, err, "secrets at", "the error is that of the object's resource")
}

func TestThereIsNoOpenerOfProvidersThatCannotBeBuilt(t *testing.T) {
	o, err := audit.NewOpener(parse(t, "secrets", kmsV2("vault", "unix://")))
	require.ErrorContains(t, err, "resources[0].providers[0]")
	require.Nil(t, o)
}

func TestAClosedOpenerAsksNoPlugin(t *testing.T) {
	plugin := faultplugin.Start(t)
	c := parse(t, "secrets", kmsV2("vault", plugin.Endpoint()))
	objects := under(t, c, 2)
	o := opener(t, c)
	require.NoError(t, o.Open(t.Context(), secrets, objects[0]))
	before := plugin.Calls()
	o.Close()
	require.ErrorIs(t, o.Open(t.Context(), secrets, objects[1]), envelope.ErrClosed)
	require.Equal(t, before, plugin.Calls())
}

func TestValuesOfKubeAPIServerOpen(t *testing.T) {
	plugin := faultplugin.Start(t)
	for _, g := range goldens(t) {
		if g.Provider != "kms-v2" {
			continue
		}
		i := audit.Inspect(g.value(t), nil)
		o := opener(t, parse(t, "secrets", kmsV2(i.Form.Name, plugin.Endpoint())))
		require.NoError(t, o.Open(t.Context(), secrets, audit.Object{Key: g.AAD, Value: g.value(t)}), g.Name)
	}
}

// One value of 256 has padding that fits, whatever the key: to open is to be an object.
func TestAESCBCUnderAnotherKeyOfTheNameDoesNotOpen(t *testing.T) {
	key, block := "/registry/secrets/shop/db", bytes.Repeat([]byte("k8s:"), 4)
	one := parse(t, "secrets", keyed("aescbc", "key"))
	garbage := write(t, one).seal("secrets", key, string(block)) // what another key makes of an object
	o := opener(t, one)
	require.ErrorIs(t, o.Open(t.Context(), secrets, audit.Object{Key: key, Value: garbage}), envelope.ErrCorrupt)
	require.ErrorIs(t, o.OpenLocal(t.Context(), secrets, audit.Object{Key: key, Value: garbage}), envelope.ErrCorrupt)
	_, _, err := o.Recover(t.Context(), secrets, audit.Object{Key: key, Value: garbage})
	require.ErrorIs(t, err, envelope.ErrCorrupt)
	for _, object := range []string{"{}", "k8s\x00x", "\xd9\xd9\xf7\xa0"} {
		require.NoError(t, o.Open(t.Context(), secrets, audit.Object{Key: key, Value: write(t, one).seal("secrets", key, object)}))
	}
}

// A key may be given another name, and so may a plugin, and is the same key. Its name may be another's.
func TestWhatIsUnderAnotherNameOpens(t *testing.T) {
	plugin := faultplugin.Start(t)
	key := "/registry/secrets/shop/db"
	now := parse(t, "secrets", kmsV2("vault", plugin.Endpoint()), keyed("aesgcm", "key"))
	o := opener(t, now)
	for want, then := range map[string]*config.Configuration{
		"vault": parse(t, "secrets", kmsV2("before", plugin.Endpoint())), "key": parse(t, "secrets", keyed("aesgcm", "monkey")),
	} {
		object := audit.Object{Key: key, Value: write(t, then).seal("secrets", key, "{}")}
		require.Error(t, o.Open(t.Context(), secrets, object))
		plaintext, name, err := o.ByItself(t.Context(), secrets, object)
		require.NoError(t, err)
		require.Equal(t, want, name)
		require.Equal(t, "{}", string(plaintext))
	}
	taken := opener(t, parse(t, "secrets", keyed("aesgcm", "one", "two")))
	object := audit.Object{Key: key, Value: bytes.Replace(write(t, parse(t, "secrets", keyed("aesgcm", "two"))).seal("secrets", key, "{}"), []byte(":two:"), []byte(":one:"), 1)}
	require.Error(t, taken.Open(t.Context(), secrets, object))
	_, name, err := taken.ByItself(t.Context(), secrets, object)
	require.NoError(t, err)
	require.Equal(t, "two", name)
	object = audit.Object{Key: key, Value: []byte("k8s:enc:secretbox:v1:gone:0123456789012345678901234567890123456789")}
	_, name, err = o.ByItself(t.Context(), secrets, object)
	require.NoError(t, err)
	require.Empty(t, name, "there is no other of its kind")
	object.Value = write(t, parse(t, "secrets", kmsV2("before", plugin.Endpoint()))).seal("secrets", key, "{}")
	plugin.Kill()
	_, _, err = opener(t, now).ByItself(t.Context(), secrets, object)
	require.ErrorIs(t, err, envelope.ErrUnavailable, "it may have the key")
}

// Of two keys of a name the first one's padding fits in one value of 256 that the other has made.
func TestEachOfTwoKeysOfANameOpensWhatIsUnderIt(t *testing.T) {
	key := "/registry/secrets/shop/db"
	written := write(t, parse(t, "secrets", `aescbc: {keys: [{name: key1, secret: `+base64Of(strings.Repeat("2", 32))+`}]}`))
	o := opener(t, parse(t, "secrets", `aescbc: {keys: [{name: key1, secret: `+base64Of(strings.Repeat("1", 32))+`}]}`, `aescbc: {keys: [{name: key1, secret: `+base64Of(strings.Repeat("2", 32))+`}]}`))
	garbage := 0
	for range 2000 {
		object := audit.Object{Key: key, Value: written.seal("secrets", key, "{}")}
		if _, _, err := o.Anyhow(t.Context(), secrets, object); err != nil {
			garbage++
		}
		plaintext, name, err := o.ByItself(t.Context(), secrets, object)
		require.NoError(t, err)
		require.Equal(t, "key1", name)
		require.Equal(t, "{}", string(plaintext))
	}
	require.Positive(t, garbage)
}

// A key that a value is not under opens some values to whatever, of which some begin as JSON does.
func TestWhatOnlyBeginsAsJSONIsNoObject(t *testing.T) {
	key := "/registry/secrets/shop/db"
	rules := parse(t, "secrets", `aescbc: {keys: [{name: key1, secret: `+base64Of(strings.Repeat("2", 32))+`}]}`)
	object := audit.Object{Key: key, Value: write(t, rules).seal("secrets", key, "{\x97\x8a\x0e")}
	_, err := opener(t, rules).Plaintext(t.Context(), secrets, object)
	require.ErrorIs(t, err, envelope.ErrCorrupt)
}

// Anyhow tries every rule, and asks a plugin that is away as seldom as Open does.
func TestAnyhowTriesEveryRule(t *testing.T) {
	plugin := faultplugin.Start(t)
	written := parse(t, "secrets", kmsV2("vault", plugin.Endpoint()))
	objects := under(t, written, 8)
	c := parseRules(t, rule("secrets", keyed("aesgcm", "key")), rule("configmaps", kmsV2("vault", plugin.Endpoint())))
	plaintext, with, err := opener(t, c).Anyhow(t.Context(), secrets, objects[0])
	require.NoError(t, err)
	require.Equal(t, "{secret}", string(plaintext))
	require.Equal(t, "configmaps", with.String())

	plugin.Set(func(b *faultplugin.Behaviour) { b.DecryptErr = status.Error(codes.PermissionDenied, "sealed") })
	before, o := plugin.Calls().Decrypt, opener(t, c)
	for _, object := range objects {
		_, _, err := o.Anyhow(t.Context(), secrets, object)
		require.ErrorIs(t, err, envelope.ErrUnavailable, "it may have the key")
		require.ErrorContains(t, err, "no matching prefix found")
	}
	require.EqualValues(t, 3, plugin.Calls().Decrypt-before, "given up after three failures")

	_, _, err = opener(t, parse(t, "secrets", keyed("aesgcm", "key"))).Anyhow(t.Context(), secrets, objects[0])
	require.NotErrorIs(t, err, envelope.ErrUnavailable)
}
