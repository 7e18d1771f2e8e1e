package envelope

import (
	"bytes"
	"context"
	"crypto/fips140"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	"k8s.io/kms/pkg/service"

	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/internal/unenforced"
)

// reader is a provider that only reads, on a healthy base64 plugin.
func reader(t *testing.T, change ...func(*Options)) (*Lease, *faultyPlugin) {
	plugin := newFaultyPlugin()
	opts := Options{}
	for _, c := range change {
		c(&opts)
	}
	l := lease(NewProvider(plugin, opts), Reads)
	t.Cleanup(l.End)
	return l, plugin
}

func TestGoldenRecords(t *testing.T) {
	raw, err := os.ReadFile("../internal/stored/testdata/golden.json")
	require.NoError(t, err)
	var records []struct{ Name, Provider, AAD, PlaintextHex, StoredHex string }
	require.NoError(t, json.Unmarshal(raw, &records))
	l, _ := reader(t)
	read := 0
	for _, r := range records {
		if r.Provider != "kms-v2" {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			read++
			value_, err := hex.DecodeString(r.StoredHex)
			require.NoError(t, err)
			_, name, ok := stored.Identify(value_)
			require.True(t, ok)
			payload := value_[len(stored.KMSv2.PrefixFor(name)):]
			for range 2 { // cold, then from the cache
				got, stale, err := l.Open(t.Context(), payload, value.DefaultContext(r.AAD))
				require.NoError(t, err)
				require.False(t, stale)
				require.Equal(t, r.PlaintextHex, hex.EncodeToString(got))
			}
			_, _, err = l.Open(t.Context(), payload, value.DefaultContext(r.AAD+"x"))
			require.ErrorIs(t, err, ErrCorrupt)
		})
	}
	require.GreaterOrEqual(t, read, 4, "the golden file holds KMS v2 records")
}

// serviceOf makes a faulty plugin what kube-apiserver's own transformer asks.
type serviceOf struct{ *faultyPlugin }

func (s serviceOf) Status(ctx context.Context) (*service.StatusResponse, error) {
	r, err := s.faultyPlugin.Status(ctx)
	return &service.StatusResponse{Version: r.Version, Healthz: r.Healthz, KeyID: r.KeyID}, err
}

func (s serviceOf) Encrypt(ctx context.Context, _ string, data []byte) (*service.EncryptResponse, error) {
	r, err := s.faultyPlugin.Encrypt(ctx, data)
	return &service.EncryptResponse{Ciphertext: r.Ciphertext, KeyID: r.KeyID, Annotations: r.Annotations}, err
}

func (s serviceOf) Decrypt(ctx context.Context, _ string, r *service.DecryptRequest) ([]byte, error) {
	return s.faultyPlugin.Decrypt(ctx, Wrapped{Ciphertext: r.Ciphertext, KeyID: r.KeyID, Annotations: r.Annotations})
}

// theirs is kube-apiserver's own KMS v2 transformer over a plugin.
func theirs(t *testing.T, plugin *faultyPlugin, seed bool) value.Transformer {
	var state kmsv2.State
	fips140.WithoutEnforcement(func() {
		tr, enc, key, err := kmsv2.GenerateTransformer(t.Context(), "uid", serviceOf{plugin}, seed)
		require.NoError(t, err)
		state = kmsv2.State{
			Transformer: tr, EncryptedObjectKeyID: enc.KeyID, EncryptedObjectEncryptedDEKSource: enc.EncryptedDEKSource,
			EncryptedObjectEncryptedDEKSourceType: enc.EncryptedDEKSourceType, EncryptedObjectAnnotations: enc.Annotations,
			UID: "uid", ExpirationTimestamp: testStart.AddDate(100, 0, 0), CacheKey: key,
		}
	})
	return unenforced.Transformer(kmsv2.NewEnvelopeTransformer(serviceOf{plugin}, "test",
		func() (kmsv2.State, error) { return state, nil }, "apiserver"))
}

func annotations(n int) map[string][]byte {
	m := map[string][]byte{}
	for i := range n {
		m[fmt.Sprintf("a%d.example.com", i)] = fmt.Appendf(nil, "value %d", i)
	}
	return m
}

// What either writes the other reads, in both modes.
func TestKubeAPIServerReadsWhatIsWrittenHereAndTheOtherWayRound(t *testing.T) {
	for _, mode := range WriteModes() {
		for n := range 4 {
			t.Run(fmt.Sprintf("%s with %d annotations", mode, n), func(t *testing.T) {
				plugin := newFaultyPlugin()
				plugin.annotations = annotations(n)
				ours := lease(NewProvider(plugin, Options{Mode: mode}), Writes)
				defer ours.End()
				require.NoError(t, ours.Asked(t.Context()))
				kube := theirs(t, plugin, mode == Seed)
				for _, size := range []int{0, 1, 15, 16, 17, 1 << 10, 64 << 10, 3 << 19} {
					plaintext := bytes.Repeat([]byte{7}, size)

					out, err := ours.Seal(t.Context(), testPrefix, plaintext, testKey)
					require.NoError(t, err)
					require.Equal(t, cap(out), len(out), "sized exactly")
					got, stale, err := kube.TransformFromStorage(t.Context(), out[len(testPrefix):], testKey)
					require.NoError(t, err)
					require.False(t, stale)
					require.True(t, bytes.Equal(plaintext, got))

					for range 8 { // their annotations come in a random order
						out, err = kube.TransformToStorage(t.Context(), plaintext, testKey)
						require.NoError(t, err)
						got, stale, err = ours.Open(t.Context(), out, testKey)
						require.NoError(t, err)
						require.False(t, stale)
						require.True(t, bytes.Equal(plaintext, got))
					}
				}
				_, _, decrypts := plugin.calls()
				require.LessOrEqual(t, decrypts, 3, "one unwrapping on each side, and one to prove the DEK")
			})
		}
	}
}

func TestManyReadersOfOneColdDEKAskOnce(t *testing.T) {
	payload := newRig(t).write("value")
	l, plugin := reader(t)
	plugin.decrypting = make(chan struct{})
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			got, _, err := l.Open(t.Context(), payload, testKey)
			require.NoError(t, err)
			require.Equal(t, "value", string(got))
		})
	}
	close(plugin.decrypting)
	wg.Wait()
	_, _, decrypts := plugin.calls()
	require.Equal(t, 1, decrypts)
}

// The reader who happened to come first may go away: the rest still get their DEK.
func TestAReaderThatGivesUpDoesNotEndTheCall(t *testing.T) {
	payload := newRig(t).write("value")
	l, plugin := reader(t)
	plugin.decrypting = make(chan struct{})
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, _, err := l.Open(ctx, payload, testKey)
		gone <- err
	}()
	require.Eventually(t, func() bool { _, _, n := plugin.calls(); return n == 1 }, testWait, testTick)
	giveUp()
	err := <-gone
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)

	close(plugin.decrypting)
	_, _, err = l.Open(t.Context(), payload, testKey)
	require.NoError(t, err)
	_, _, decrypts := plugin.calls()
	require.Equal(t, 1, decrypts)
}

// An outage, an unknown key and a damaged value are three things to a caller.
func TestWhatFailsIsTold(t *testing.T) {
	payload := newRig(t).write("value")
	for err, want := range map[error]error{
		errGone: ErrUnavailable,
		status.Error(codes.NotFound, "destroyed"):  ErrUnknownKEK,
		status.Error(codes.PermissionDenied, "no"): ErrUnavailable,
		status.Error(codes.InvalidArgument, "odd"): ErrForeignDEK,
		fmt.Errorf("odd"):                          ErrUnavailable,
	} {
		l, plugin := reader(t)
		plugin.set(func(f *faultyPlugin) { f.decErr = err })
		_, _, got := l.Open(t.Context(), payload, testKey)
		require.ErrorIs(t, got, want)
		require.ErrorIs(t, got, err)
		require.Equal(t, status.Code(err), status.Code(got), "the code is there for the metric")
	}

	l, plugin := reader(t)
	_, tail, _ := stored.Split(payload)
	short := append(stored.AppendDataHead(nil, 5), append([]byte("short"), tail...)...)
	for _, p := range [][]byte{nil, {}, {0xff}, payload[:20], short, flip(payload, 20)} {
		_, _, got := l.Open(t.Context(), p, testKey)
		require.ErrorIs(t, got, ErrCorrupt)
	}
	plugin.set(func(f *faultyPlugin) { f.decErr = nil })
	garbage := bytes.Replace(payload, tail[5:30], bytes.Repeat([]byte{'A'}, 25), 1)
	_, _, got := l.Open(t.Context(), garbage, testKey)
	require.Error(t, got)
}

func flip(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 1
	return b
}

func TestWhateverThePluginUnwrapsNothingPanics(t *testing.T) {
	for _, mode := range WriteModes() {
		payload := newRig(t, func(o *Options) { o.Mode = mode }).write("value")
		for _, n := range []int{0, 1, 16, 24, 31, 32, 33, 64, 4096} {
			p := &garbagePlugin{faultyPlugin: newFaultyPlugin(), answer: make([]byte, n)}
			l := lease(NewProvider(p, Options{}), Reads)
			_, _, err := l.Open(t.Context(), payload, testKey)
			if noKey := mode == Seed && n < seedSize || mode == Counter && n != 16 && n != 24 && n != 32; noKey {
				require.ErrorIs(t, err, ErrUnavailable, "it is the plugin's fault, and not the value's")
				require.NotErrorIs(t, err, ErrCorrupt)
			} else {
				require.ErrorIs(t, err, ErrCorrupt)
			}
			l.End()
		}
	}
}

type garbagePlugin struct {
	*faultyPlugin
	answer []byte
}

func (p *garbagePlugin) Decrypt(context.Context, Wrapped) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.answer), nil
}

// A plugin that once answers with another key costs no more than the reads of
// that time.
func TestAWrongKeyIsNotKept(t *testing.T) {
	for _, mode := range WriteModes() {
		payload := newRig(t, func(o *Options) { o.Mode = mode }).write("value")
		plugin := &garbagePlugin{newFaultyPlugin(), make([]byte, dekSize)}
		l := lease(NewProvider(plugin, Options{}), Reads)
		defer l.End()
		for range 2 {
			_, _, err := l.Open(t.Context(), payload, testKey)
			require.ErrorIs(t, err, ErrCorrupt)
			require.Zero(t, l.Health().CachedDEKs)
		}
		object, err := stored.Parse(payload)
		require.NoError(t, err)
		answer, err := plugin.faultyPlugin.Decrypt(t.Context(), wrappedOf(&object.Source))
		require.NoError(t, err)
		plugin.set(func(*faultyPlugin) { plugin.answer = answer })
		got, _, err := l.Open(t.Context(), payload, testKey)
		require.NoError(t, err)
		require.Equal(t, "value", string(got))
	}
}

// Once a key has opened something, a damaged value says nothing of it.
func TestADamagedValueDoesNotCostAKeyThatIsInUse(t *testing.T) {
	payload := newRig(t).write("value")
	l, plugin := reader(t)
	_, _, err := l.Open(t.Context(), payload, testKey)
	require.NoError(t, err)
	damaged := bytes.Clone(payload)
	damaged[10] ^= 1
	_, _, err = l.Open(t.Context(), damaged, testKey)
	require.ErrorIs(t, err, ErrCorrupt)
	plugin.die()
	_, _, err = l.Open(t.Context(), payload, testKey)
	require.NoError(t, err)
}

// Every damage of a record is an error, whatever the plugin makes of it.
func TestEveryDamageIsNoticed(t *testing.T) {
	for _, mode := range WriteModes() {
		r := newRig(t, func(o *Options) { o.Mode = mode })
		payload := r.write("value")
		l, _ := reader(t)
		data, _, _ := stored.Split(payload)
		dataEnd := stored.SizeData(len(data))
		for i := range payload {
			_, _, err := l.Open(t.Context(), payload[:i], testKey)
			require.Error(t, err, "cut at %d", i)
			for bit := range 8 {
				damaged := bytes.Clone(payload)
				damaged[i] ^= 1 << bit
				got, _, err := l.Open(t.Context(), damaged, testKey)
				if err == nil { // a change of the tail may unwrap to the same DEK: base64 knows no key_id
					require.Equal(t, "value", string(got))
					require.Greater(t, i, dataEnd, "flip of bit %d of byte %d", bit, i)
				}
			}
		}
	}
}

func TestInputIsNeitherChangedNorKept(t *testing.T) {
	r := newRig(t)
	plaintext := []byte("value")
	out, err := r.Seal(t.Context(), testPrefix, plaintext, testKey)
	require.NoError(t, err)
	require.Equal(t, "value", string(plaintext))
	clear(plaintext)

	l, _ := reader(t)
	payload := bytes.Clone(out[len(testPrefix):])
	for range 2 {
		got, _, err := l.Open(t.Context(), payload, testKey)
		require.NoError(t, err)
		require.Equal(t, "value", string(got))
		require.Equal(t, out[len(testPrefix):], payload)
	}
	clear(payload)
	require.NotNil(t, l.cache.find(r.writer.now.Load().dek.tail), "the cache keeps its own copy")
}

// bytesContext is an etcd key that does not have to be converted: what the
// caller's context allocates is not the provider's.
type bytesContext []byte

func (c bytesContext) AuthenticatedData() []byte { return c }

func TestCheckWriteMode(t *testing.T) {
	require.Equal(t, fips140.Enforced(), CheckWriteMode(Counter) != nil)
	require.NoError(t, CheckWriteMode(Seed))
	require.Equal(t, fips140.Enforced(), !slices.Contains(WriteModes(), Counter))
	require.Contains(t, WriteModes(), Seed)
	require.ErrorContains(t, CheckWriteMode("both"), `use "counter" or "seed"`)
}

func TestAnEndpointThatNamesNoSocketIsRefused(t *testing.T) {
	for _, endpoint := range []Endpoint{"", "unix://", "tcp://127.0.0.1:1", "%zz"} {
		_, err := Dial(endpoint, DefaultTimeout, nil)
		require.Error(t, err, endpoint)
		require.False(t, strings.Contains(err.Error(), "\n"))
	}
}
