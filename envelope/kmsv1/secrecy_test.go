package kmsv1

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/envelope"
)

// No text of anything here has a DEK in it, in any encoding.
func TestNoTextHasAKeyInIt(t *testing.T) {
	r := newRig(t)
	r.plugin.set(func(p *faultyPlugin) { p.wrap = func([]byte) []byte { return []byte("wrapped") } })
	r.write("value")
	secret := r.plugin.last()
	d := r.cache.find([]byte("wrapped"))
	stored, err := newStoredDEK(secret)
	require.NoError(t, err)
	for _, v := range []any{d, stored, r.held, r.Provider, []any{r.Provider}, r.cache, r.cache.ring.next, []*dek{d}, map[string]any{"dek": stored}} {
		texts := []string{}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
			texts = append(texts, fmt.Sprintf(verb, v))
		}
		out, _ := json.Marshal(v)
		for _, text := range append(texts, string(out)) {
			requireNoKey(t, text, secret)
		}
	}
	require.Equal(t, "DEK (redacted)", fmt.Sprint(d))
	r.plugin.set(func(p *faultyPlugin) { p.wrap = func(dek []byte) []byte { return dek } })
	_, err = r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	requireNoKey(t, err.Error(), r.plugin.last())
	r.plugin.set(func(p *faultyPlugin) { p.unwrapped = secret[:31] })
	_, _, err = r.Open(t.Context(), oldRecord(t, newFaultyPlugin(), "x"), testKey)
	requireNoKey(t, err.Error(), secret[:31])
}

func requireNoKey(t *testing.T, text string, secret []byte) {
	t.Helper()
	part := secret[:8]
	decimal := fmt.Sprint(part)
	for _, encoded := range []string{
		string(part), hex.EncodeToString(part), fmt.Sprintf("%X", part),
		base64.StdEncoding.EncodeToString(part)[:10], decimal[1 : len(decimal)-1],
	} {
		require.NotContains(t, text, encoded)
	}
}

// keeper keeps the very slices that it is given and gives out, once it has
// answered a probe as it should.
type keeper struct {
	*faultyPlugin
	probe, given, gave []byte
}

func (k *keeper) Encrypt(_ context.Context, dek []byte) ([]byte, error) {
	if k.probe == nil {
		k.probe = bytes.Clone(dek)
		return []byte("probe"), nil
	}
	k.given = dek
	return []byte("wrapped"), nil
}

func (k *keeper) Decrypt(_ context.Context, wrapped []byte) ([]byte, error) {
	if string(wrapped) == "probe" {
		return bytes.Clone(k.probe), nil
	}
	return k.gave, nil
}

func TestADEKIsOverwrittenOnceItsCipherIsMade(t *testing.T) {
	k := &keeper{faultyPlugin: newFaultyPlugin(), gave: bytes.Repeat([]byte{1}, dekSize)}
	l := hold(t, NewProvider(k, Options{CacheSize: -1}), envelope.Writes)
	require.NoError(t, l.followed.Asked(t.Context()))
	out, err := l.Seal(t.Context(), "", []byte("value"), testKey)
	require.NoError(t, err)
	require.Equal(t, make([]byte, dekSize), k.given)

	k.gave = bytes.Repeat([]byte{1}, dekSize)
	_, _, err = l.Open(t.Context(), out, testKey)
	require.Error(t, err, "it is another DEK")
	require.Equal(t, make([]byte, dekSize), k.gave)
}
