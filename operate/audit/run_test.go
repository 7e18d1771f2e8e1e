package audit_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/operate/audit"
)

// An apiserver tells the hash of the DEK that it writes with, and it is found.
func TestADEKThatAnApiserverTellsOfIsFound(t *testing.T) {
	plugin := faultplugin.Start(t)
	c := parseRules(t, rule("secrets", kmsV2("vault", plugin.Endpoint())))
	first, second := write(t, c), write(t, c)
	stored := memory{"/registry/secrets/default/a": first.seal("secrets", "/registry/secrets/default/a", "value")}
	told := func(w writer) string { return w.transformers.Health()[0].DEKHash }
	require.NotEqual(t, told(first), told(second))
	r := run(t, stored, audit.Options{DEKs: []string{told(second), told(first)}})
	require.Equal(t, []string{told(first)}, r.DEKs)
	require.Empty(t, run(t, stored, audit.Options{}).DEKs)
}

func TestObjectsAreCountedByResourceAndForm(t *testing.T) {
	plugin := faultplugin.Start(t)
	c := parseRules(t, rule("secrets", kmsV2("vault", plugin.Endpoint()), identity), rule("configmaps", keyed("aesgcm", "one")))
	first, second := write(t, c), write(t, c)
	stored := memory{"/registry/pods/default/a": []byte("{}"), "/registry2/secrets/x": []byte("{}"), "compact_rev_key": []byte("7")}
	for i := range 10 {
		key := fmt.Sprintf("/registry/secrets/default/%02d", i)
		switch {
		case i < 3:
			stored[key] = []byte("k8s\x00plain")
		case i < 7:
			stored[key] = first.seal("secrets", key, "value")
		default:
			stored[key] = second.seal("secrets", key, "value")
		}
		key = fmt.Sprintf("/registry/configmaps/default/%02d", i)
		stored[key] = first.seal("configmaps", key, "value")
	}

	r := run(t, stored, audit.Options{})
	require.Equal(t, int64(7), r.Revision)
	require.Equal(t, "/registry/", r.Prefix)
	require.Equal(t, int64(21), r.Objects)
	require.Len(t, r.Resources, 3)
	require.Empty(t, r.Problems)
	require.Empty(t, r.Guessed)

	secrets := resource(t, r, "secrets")
	require.Equal(t, int64(10), secrets.Objects)
	require.Len(t, secrets.Forms, 2)
	sealed, plain := secrets.Forms[0], secrets.Forms[1]
	source := map[envelope.WriteMode]audit.DEKSource{envelope.Counter: audit.DEK, envelope.Seed: audit.Seed}[envelope.WriteModes()[0]]
	require.Equal(t, audit.Form{Kind: config.KMSv2, Name: "vault", KeyIDHash: envelope.HashKeyID("1"), DEKSource: source}, sealed.Form)
	require.Equal(t, int64(7), sealed.Objects)
	require.Equal(t, int64(2), sealed.DEKs, "one for each apiserver")
	require.Equal(t, audit.Form{Kind: audit.Plaintext}, plain.Form)
	require.Equal(t, int64(3*len("k8s\x00plain")), plain.Bytes)
	require.Equal(t, []string{"/registry/secrets/default/00", "/registry/secrets/default/01", "/registry/secrets/default/02"}, plain.Keys)

	maps := resource(t, r, "configmaps")
	require.Equal(t, audit.Form{Kind: config.AESGCM, Name: "one"}, maps.Forms[0].Form)
	require.Zero(t, maps.Forms[0].DEKs)
	require.Equal(t, r.Bytes, secrets.Bytes+maps.Bytes+2)
}

func TestKeyIDsAreShownOnRequest(t *testing.T) {
	plugin := faultplugin.Start(t)
	const key = "/registry/secrets/default/a"
	stored := memory{key: write(t, parse(t, "secrets", kmsV2("vault", plugin.Endpoint()))).seal("secrets", key, "value")}
	require.Empty(t, run(t, stored, audit.Options{}).Resources[0].Forms[0].KeyID)
	require.Equal(t, "1", run(t, stored, audit.Options{KeyIDs: true}).Resources[0].Forms[0].KeyID)
}

func TestEachObjectIsTold(t *testing.T) {
	stored := memory{"/registry/secrets/default/a": []byte("{}"), "/registry/example.com/widgets/default/b": []byte("k8s:enc:other:")}
	told := map[string]string{}
	run(t, stored, audit.Options{Each: func(r schema.GroupResource, key string, f audit.Form) {
		told[key] = r.String() + ": " + f.String()
	}})
	require.Equal(t, map[string]string{
		"/registry/secrets/default/a":             "secrets: plaintext",
		"/registry/example.com/widgets/default/b": "widgets.example.com: unknown prefix",
	}, told)
}

func TestAPartCanBeWalked(t *testing.T) {
	stored := memory{"/registry/secrets/a": []byte("{}"), "/registry/secretsandmore/a": []byte("{}"), "/registry/pods/a": []byte("{}")}
	layout := audit.NewLayout("", nil)
	r := run(t, stored, audit.Options{Layout: layout, Within: layout.Places(schema.GroupResource{Resource: "secrets"})})
	require.Equal(t, int64(1), r.Objects)
	require.Equal(t, "/registry/secrets/", r.Prefix)
	require.Equal(t, "secrets", r.Resources[0].Name)
}

func TestProblemsAreListedByKeyUpToALimit(t *testing.T) {
	stored := memory{}
	for i := range 30 {
		stored[fmt.Sprintf("/registry/secrets/default/%02d", i)] = []byte("garbage")
	}
	stored["/registry/gadgets/\xff\x1b[31m"] = []byte("k8s:enc:new:v1:x")
	stored["/registry/secrets/"+strings.Repeat("long", 1000)] = []byte("")

	r := run(t, stored, audit.Options{MaxListed: 4})
	require.Equal(t, int64(31), resource(t, r, "secrets").Forms[0].Objects)
	require.Equal(t, []string{"gadgets"}, r.Guessed)
	require.Len(t, r.Problems, 4)
	require.Equal(t, audit.Problem{Key: "/registry/gadgets/?\x1b[31m", Resource: "gadgets", Form: audit.Form{Kind: audit.Unknown},
		Why: `begins with "k8s:enc:new:v1:", which no known provider writes`}, r.Problems[0])
	for i, p := range r.Problems[1:] {
		require.Equal(t, fmt.Sprintf("/registry/secrets/default/%02d", i), p.Key)
	}

	for _, p := range run(t, stored, audit.Options{MaxListed: 100}).Problems {
		require.LessOrEqual(t, len(p.Key), 1<<10+3)
	}
}

func TestTheSameIsListedWhateverTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c]{1,4}`), 1, 30, rapid.ID[string]).Draw(t, "keys")
		n := rapid.IntRange(1, 5).Draw(t, "listed")
		var full []string
		for _, key := range keys {
			full = append(full, "/registry/pods/"+key)
		}
		source := sourceOf(int64(len(full)), objects(full, func(string) []byte { return []byte("{}") }))
		r, err := audit.Run(context.Background(), source, audit.Options{MaxListed: n})
		require.NoError(t, err)
		slices.Sort(full)
		require.Equal(t, full[:min(n, len(full))], r.Resources[0].Forms[0].Keys)
	})
}

// source is one whose objects are given.
type source func() (*audit.Contents, error)

func (s source) Read(context.Context, string) (*audit.Contents, error) { return s() }

func sourceOf(total int64, objects iter.Seq2[audit.Object, error]) source {
	return func() (*audit.Contents, error) {
		return &audit.Contents{Revision: 1, Total: total, Objects: objects}, nil
	}
}

func TestAnErrorEndsTheWalkWithoutAReport(t *testing.T) {
	gone := errors.New("gone")
	_, err := audit.Run(t.Context(), source(func() (*audit.Contents, error) { return nil, gone }), audit.Options{})
	require.ErrorIs(t, err, gone)

	half := func(yield func(audit.Object, error) bool) {
		require.True(t, yield(audit.Object{Key: "/registry/pods/a", Value: []byte("{}")}, nil))
		require.False(t, yield(audit.Object{}, gone))
	}
	r, err := audit.Run(t.Context(), sourceOf(5, half), audit.Options{})
	require.ErrorIs(t, err, gone)
	require.ErrorContains(t, err, "after 1 of 5 objects")
	require.Nil(t, r)
}

func TestACancelledWalkEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	endless := func(yield func(audit.Object, error) bool) {
		for i := 0; yield(audit.Object{Key: fmt.Sprintf("/registry/pods/%d", i), Value: []byte("{}")}, nil); i++ {
			if i == 10 {
				cancel()
			}
		}
	}
	_, err := audit.Run(ctx, sourceOf(0, endless), audit.Options{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestProgressIsToldInHundreds(t *testing.T) {
	stored := memory{}
	for i := range 250 {
		stored[fmt.Sprintf("/registry/pods/%d", i)] = []byte("{}")
	}
	var told [][2]int64
	run(t, stored, audit.Options{Progress: func(done, total int64) { told = append(told, [2]int64{done, total}) }})
	require.Equal(t, [][2]int64{{100, 250}, {200, 250}, {250, 250}}, told)
}

func TestTheRateIsKept(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	read := 0
	some := func(yield func(audit.Object, error) bool) {
		for read = 1; read <= 30; read++ {
			if !yield(audit.Object{Key: "/registry/pods/a", Value: []byte("{}")}, nil) {
				return
			}
		}
	}
	done := make(chan error)
	go func() {
		_, err := audit.Run(t.Context(), sourceOf(30, some), audit.Options{Rate: 10, Clock: clock})
		done <- err
	}()
	for step := range 30 {
		require.Eventually(t, clock.HasWaiters, 10*time.Second, time.Millisecond)
		require.Equal(t, step+1, read, "ten a second")
		clock.Step(100 * time.Millisecond)
	}
	require.NoError(t, <-done)
}

func TestNoTimerIsSetForTheTimeOfAnObjectOrTwo(t *testing.T) {
	stored := memory{"/registry/pods/a": []byte("{}"), "/registry/pods/b": []byte("{}")}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // of a walk that waits
	defer cancel()
	r, err := audit.Run(ctx, stored, audit.Options{Rate: 101, Clock: clocktesting.NewFakeClock(time.Unix(0, 0))})
	require.NoError(t, err)
	require.Equal(t, int64(2), r.Objects)
}

func TestAWaitingWalkCanBeCancelled(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := audit.Run(ctx, memory{"/registry/pods/a": []byte("{}")}, audit.Options{Rate: 1, Clock: clock})
		done <- err
	}()
	require.Eventually(t, clock.HasWaiters, 10*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// No store can make a report grow without end.
func TestWhatIsTooMuchToTellApartIsCountedTogether(t *testing.T) {
	const many = audit.MaxRows + 100
	keys := make([]string, many)
	for i := range keys {
		keys[i] = fmt.Sprintf("/registry/group%05d.example.com/things/a", i)
	}
	value := func(string) []byte { return []byte("k8s:enc:aesgcm:v1:key:" + strings.Repeat("x", 28)) }
	r := run(t, sourceOf(many, objects(keys, value)), audit.Options{})
	require.Equal(t, int64(many), r.Objects)
	require.Len(t, r.Resources, audit.MaxRows+1)
	rest := resource(t, r, audit.Rest)
	require.Equal(t, int64(100), rest.Objects)
	require.Equal(t, audit.Form{Kind: config.AESGCM}, rest.Forms[0].Form)
	findings := r.Against(parse(t, "'*.*'", keyed("aesgcm", "key")), nil)
	require.Len(t, findings, 1)
	require.Equal(t, audit.Unreadable, findings[0].Kind)
	require.Contains(t, findings[0].Message, "audit one resource at a time")
}

// 50,000 Secrets of 64 KiB, 3 GiB in all, are counted in a few MiB.
func TestMemoryDoesNotDependOnTheNumberOfObjects(t *testing.T) {
	const many, size = 50_000, 64 << 10
	value := slices.Concat([]byte("k8s:enc:secretbox:v1:key:"), make([]byte, size))
	var peak uint64
	walk := func(n int) uint64 {
		peak = 0
		some := func(yield func(audit.Object, error) bool) {
			for i := range n {
				if !yield(audit.Object{Key: fmt.Sprintf("/registry/secrets/namespace-%d/secret-%d", i%100, i), Value: value}, nil) {
					return
				}
			}
		}
		o := audit.Options{Progress: func(done, _ int64) {
			if done%(int64(n)/10) == 0 {
				peak = max(peak, live())
			}
		}}
		report := run(t, sourceOf(int64(n), some), o)
		require.Equal(t, int64(n)*int64(len(value)), report.Bytes)
		return peak
	}
	few := walk(1000)
	require.Less(t, walk(many), few+4<<20)
}

// live are the bytes in use on the heap.
func live() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
