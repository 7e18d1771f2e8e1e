package keyfile

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// recognisable is a KEK whose bytes show in any encoding of it.
var recognisable = [kek.Size]byte([]byte("0123456789abcdefghijklmnopqrstuv"))

// requireNoKey looks for the recognisable KEK in text, in all the ways that
// text may hold it.
func requireNoKey(t *testing.T, text string) {
	t.Helper()
	raw := recognisable[:]
	for _, form := range []string{
		string(raw[:8]), hex.EncodeToString(raw[:8]), strings.ToUpper(hex.EncodeToString(raw[:8])),
		base64.StdEncoding.EncodeToString(raw)[:8], "48 49 50 51", "0x30, 0x31", "30 31 32 33",
		"858927408", "926299444", // the first words of the AES key schedule, little-endian
		"808530483", "875902519", // and big-endian
	} {
		require.NotContains(t, text, form)
	}
}

func TestNothingPrintsAKey(t *testing.T) {
	secret, err := kek.New(domain, recognisable)
	require.NoError(t, err)
	held := key{id: strings.Repeat("0", 32), kek: secret}
	ring := newRing(held.id, held)
	p := &session{file: At(filepath.Join(t.TempDir(), "kek"))}
	p.ring.Store(ring)

	for _, value := range []any{secret, &secret, held, &held, []key{held}, *ring, ring, p, ring.Versions(), ring.infos(), map[string]kek.KEK{"k": secret}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "% x", "%o", "%t"} {
			requireNoKey(t, fmt.Sprintf(verb, value))
		}
		requireNoKey(t, fmt.Sprint(value))
		text, err := json.Marshal(value)
		if err == nil {
			requireNoKey(t, string(text))
		}
	}
	require.Equal(t, "[redacted KEK]", secret.String())
	require.Equal(t, "[redacted KEK]", fmt.Sprintf("%x", secret))

	var log strings.Builder
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
	logger.Info("key", "kek", secret, "key", held, "session", klog.Format(p))
	requireNoKey(t, log.String())
}
