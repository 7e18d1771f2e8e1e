package transformer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/transformer"
)

// fake is a provider that answers as told.
type fake struct {
	stale bool
	err   error
}

func (f fake) Seal(_ context.Context, prefix string, plaintext []byte, _ value.Context) ([]byte, error) {
	return append([]byte(prefix), plaintext...), f.err
}

func (f fake) Open(_ context.Context, payload []byte, _ value.Context) ([]byte, bool, error) {
	return payload, f.stale, f.err
}

func chainOf(providers ...fake) *transformer.Chain {
	var entries []transformer.Entry
	for _, p := range providers {
		entries = append(entries, transformer.Entry{Prefix: stored.KMSv2.PrefixFor("plugin"), Label: stored.KMSv2.Prefix, Provider: p})
	}
	return transformer.NewChain(secrets, entries)
}

var underPlugin = []byte("k8s:enc:kms:v2:plugin:payload")

func TestStaleIfTheProviderSaysSoOrIsNotTheFirst(t *testing.T) {
	broken := fake{err: errors.New("no")}
	for _, tc := range []struct {
		chain *transformer.Chain
		stale bool
	}{
		{chainOf(fake{}), false},
		{chainOf(fake{stale: true}), true},
		{chainOf(broken, fake{}), true},
		{chainOf(fake{}, broken), false},
	} {
		require.Equal(t, verdict{opened: true, value: "payload", stale: tc.stale}, read(tc.chain, underPlugin, here))
	}
}

func TestRotationReadsEveryKeyAndWritesTheFirst(t *testing.T) {
	for _, format := range []stored.Format{stored.AESGCM, stored.AESCBC, stored.Secretbox} {
		older, newer := keyed{"2025", keyOf(1, 32)}, keyed{"2026", keyOf(2, 32)}
		before := ours(t, provider{format, []keyed{older}})
		spread := ours(t, provider{format, []keyed{older, newer}})
		after := ours(t, provider{format, []keyed{newer, older}})
		done := ours(t, provider{format, []keyed{newer}})

		old, rewritten := write(t, before, []byte("v")), write(t, after, []byte("v"))
		require.Equal(t, verdict{true, "v", false}, read(spread, old, here))
		require.Equal(t, verdict{true, "v", true}, read(spread, rewritten, here))
		require.Equal(t, verdict{true, "v", true}, read(after, old, here))
		require.Equal(t, verdict{true, "v", false}, read(after, rewritten, here))
		require.Equal(t, verdict{true, "v", false}, read(done, rewritten, here))

		_, _, err := done.TransformFromStorage(ctx, old, here)
		require.ErrorIs(t, err, transformer.ErrNoProvider)
	}
}

func TestKeysOfOneNameAreAllTried(t *testing.T) {
	for _, format := range []stored.Format{stored.AESGCM, stored.Secretbox} {
		old := write(t, ours(t, one(format, "key", keyOf(1, 32))), []byte("v"))
		both := ours(t, one(format, "key", keyOf(2, 32)), one(format, "key", keyOf(1, 32)))
		require.Equal(t, verdict{true, "v", true}, read(both, old, here))
	}
}

// Moving off encryption: identity stands first and must not stop the reader.
func TestIdentityFirstStillReadsCiphertext(t *testing.T) {
	gcm := one(stored.AESGCM, "key", keyOf(1, 32))
	encrypted := write(t, ours(t, gcm), []byte("v"))
	chain := ours(t, provider{}, gcm)
	require.Equal(t, verdict{true, "v", true}, read(chain, encrypted, here))
	require.Equal(t, verdict{true, "v", false}, read(chain, []byte("v"), here))
	require.Equal(t, "v", string(write(t, chain, []byte("v"))))
}

func TestNoProviderSaysWhatIsMissingAndWhatToDo(t *testing.T) {
	chain := ours(t, one(stored.AESGCM, "new", keyOf(1, 32)), provider{})
	plainless := ours(t, one(stored.AESGCM, "new", keyOf(1, 32)))
	for _, tc := range []struct {
		reader value.Read
		data   string
		says   string
		remedy string
	}{
		{chain, "k8s:enc:aesgcm:v1:old:payload", `stored with aesgcm, key "old"`, "add that provider and key back"},
		{chain, "k8s:enc:kms:v2:cloud:payload", `stored with kms v2, provider "cloud"`, "add that provider and key back"},
		{chain, "k8s:enc:aescbc:v1:", `stored with aescbc, without a readable key name`, "add that provider and key back"},
		{chain, "k8s:enc:rot13:v9:key:payload-that-is-not-repeated", `in an unknown format, beginning "k8s:enc:rot13:v9:key:payload-tha"...`, "add that provider and key back"},
		{plainless, `{"secret":"open"}`, `stored as plaintext`, "add identity"},
		{plainless, "", `stored as plaintext`, "add identity"},
	} {
		_, _, err := tc.reader.TransformFromStorage(ctx, []byte(tc.data), here)
		require.ErrorIs(t, err, transformer.ErrNoProvider)
		require.NotErrorIs(t, err, transformer.ErrCorrupt)
		require.ErrorContains(t, err, tc.says)
		require.ErrorContains(t, err, tc.remedy)
		require.ErrorContains(t, err, "no matching prefix found", "what people grep for")
		require.ErrorContains(t, err, `secrets at "/registry/secrets/default/golden"`)
		require.ErrorContains(t, err, `["k8s:enc:aesgcm:v1:new:"`)
		require.ErrorContains(t, err, "to the resource's providers")
		require.NotContains(t, err.Error(), "payload-that")
		require.NotContains(t, err.Error(), "open", "no byte of a plaintext value")
	}
}

func TestFailureToOpenSaysWhichKeyAndWhy(t *testing.T) {
	gcm := one(stored.AESGCM, "key", keyOf(1, 32))
	_, _, err := ours(t, gcm, gcm, gcm).TransformFromStorage(ctx, write(t, ours(t, gcm), []byte("v")), there)
	require.ErrorIs(t, err, transformer.ErrCorrupt)
	require.NotErrorIs(t, err, transformer.ErrNoProvider)
	require.ErrorContains(t, err, `secrets at "/registry/secrets/default/other": stored with aesgcm, key "key"`)
	require.ErrorContains(t, err, "restore it from a backup")
	require.Equal(t, 1, strings.Count(err.Error(), "authentication failed"), "three keys failed alike: %v", err)
}

func TestOutageIsNotCorruption(t *testing.T) {
	gone := fmt.Errorf("decrypt: %w", status.Error(codes.Unavailable, "plugin is away"))
	_, _, err := chainOf(fake{err: gone}).TransformFromStorage(ctx, underPlugin, here)
	require.Equal(t, codes.Unavailable, status.Code(errors.Unwrap(err)))
	require.NotErrorIs(t, err, transformer.ErrCorrupt)
	require.ErrorContains(t, err, "not known to be damaged")
}

func TestEveryCauseCanBeFound(t *testing.T) {
	cancelled := fake{err: context.Canceled}
	gone := fake{err: status.Error(codes.Unavailable, "plugin is away")}
	_, _, err := chainOf(cancelled, gone).TransformFromStorage(ctx, underPlugin, here)
	require.ErrorIs(t, err, context.Canceled)
	var s interface{ GRPCStatus() *status.Status }
	require.ErrorAs(t, err, &s)
	require.Equal(t, codes.Unavailable, s.GRPCStatus().Code())
	require.ErrorContains(t, err, "context canceled; rpc error")

	_, err = chainOf(gone).TransformToStorage(ctx, nil, here)
	require.ErrorAs(t, err, &s)
	require.ErrorContains(t, err, `seal with "k8s:enc:kms:v2:plugin:"`)
}

func TestErrorsAreBounded(t *testing.T) {
	long := strings.Repeat("\x00", 1<<20)
	var entries []transformer.Entry
	for range 1000 {
		entries = append(entries, transformer.Entry{Prefix: "k8s:enc:kms:v2:" + long, Provider: fake{}})
	}
	chain := transformer.NewChain(secrets, entries)
	_, _, err := chain.TransformFromStorage(ctx, []byte("k8s:enc:other:"+long), value.DefaultContext(long))
	require.ErrorContains(t, err, "and 984 more")
	require.Less(t, len(err.Error()), 16<<10)

	var failing []fake
	for i := range 1000 {
		failing = append(failing, fake{err: fmt.Errorf("cause %d", i)})
	}
	_, _, err = chainOf(failing...).TransformFromStorage(ctx, underPlugin, here)
	require.Less(t, len(err.Error()), 1<<10)
	require.ErrorContains(t, err, "cause 7; ")
	require.NotContains(t, err.Error(), "cause 8")
}

// Who looks which keys are still needed goes by these counts.
func TestAReadIsCountedForTheEntryThatOpenedIt(t *testing.T) {
	newer, older := one(stored.AESGCM, "key", keyOf(2, 32)), one(stored.AESGCM, "key", keyOf(1, 32))
	all := entries(t, newer, older, provider{})
	all[0].Reads, all[1].Reads = new(transformer.Reads), new(transformer.Reads)
	chain := transformer.NewChain(secrets, all)
	old := write(t, ours(t, older), []byte("v"))
	for range 3 {
		require.True(t, read(chain, old, here).opened)
	}
	require.True(t, read(chain, write(t, chain, []byte("v")), here).opened)
	require.True(t, read(chain, []byte("plain"), here).opened, "nobody counts those of identity here")
	require.False(t, read(chain, old, there).opened)
	require.EqualValues(t, 1, all[0].Reads.Load())
	require.EqualValues(t, 3, all[1].Reads.Load())
}

func TestChainOfNothingRefusesEverything(t *testing.T) {
	chain := transformer.NewChain(secrets, nil)
	_, err := chain.TransformToStorage(ctx, []byte("v"), here)
	require.ErrorIs(t, err, transformer.ErrNoProvider)
	_, _, err = chain.TransformFromStorage(ctx, []byte("v"), here)
	require.ErrorIs(t, err, transformer.ErrNoProvider)
}

func TestOneRecordPerOperation(t *testing.T) {
	own := uuid.NewString() // metrics are the process's, and a test may run twice in one
	widgets := schema.GroupResource{Group: own, Resource: "widgets"}
	newer, older := one(stored.AESGCM, "key", keyOf(2, 32)), one(stored.AESGCM, "key", keyOf(1, 32))
	chain := transformer.NewChain(widgets, entries(t, newer, older, provider{}))
	old := write(t, ours(t, older), []byte("v"))

	write(t, chain, []byte("v"))
	require.True(t, read(chain, old, here).opened, "the second key of the name opens it")
	require.True(t, read(chain, []byte("plain"), here).opened)
	require.False(t, read(chain, old, there).opened)
	require.False(t, read(chain, []byte("k8s:enc:nothing"), here).opened)

	require.Equal(t, map[string]float64{
		"to_storage k8s:enc:aesgcm:v1: OK":                 1,
		"from_storage k8s:enc:aesgcm:v1: OK":               1,
		"from_storage identity OK":                         1,
		"from_storage k8s:enc:aesgcm:v1: unknown-non-grpc": 1,
		"from_storage unknown unknown-non-grpc":            1,
	}, operationsOf(t, "widgets."+own))

	plain := schema.GroupResource{Group: own, Resource: "plainthings"}
	write(t, transformer.NewChain(plain, entries(t, provider{})), []byte("v"))
	require.Equal(t, map[string]float64{"to_storage identity OK": 1}, operationsOf(t, "plainthings."+own))
}

func operationsOf(t *testing.T, resource string) map[string]float64 {
	t.Helper()
	metrics.Flush()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "apiserver_storage_transformation_operations_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if n := m.GetCounter().GetValue(); labels["resource"] == resource && n > 0 {
				counts[labels["transformation_type"]+" "+labels["transformer_prefix"]+" "+labels["status"]] = n
			}
		}
	}
	return counts
}
