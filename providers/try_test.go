package providers_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/envelope/kmsv1"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/providers"
)

// trying tries files over and over, as a reload does.
type trying struct {
	t       *testing.T
	inUse   *providers.Transformers
	last    *providers.Transformers
	options providers.Options
	clock   *testingclock.FakeClock
	parsed  map[string]*config.Configuration
	dials   int
	v1      *faultplugin.V1 // that every KMS v1 provider reaches
}

func try(t *testing.T, inUse string) *trying {
	y := &trying{t: t, clock: testingclock.NewFakeClock(start), v1: &faultplugin.V1{}, parsed: map[string]*config.Configuration{}}
	y.options = providers.Options{
		Envelope: envelope.Options{Clock: y.clock, MaxDEKs: 8},
		Dial: func(e envelope.Endpoint, d time.Duration, r envelope.Recorder) (envelope.Plugin, error) {
			y.dials++
			return envelope.Dial(e, d, r)
		},
		DialV1: func(envelope.Endpoint, time.Duration, envelope.Recorder) (kmsv1.Plugin, error) {
			y.dials++
			return y.v1, nil
		},
	}
	y.inUse = y.build(inUse)
	y.inUse.Commit(func() {})
	require.NoError(t, y.inUse.Prepare(t.Context()))
	t.Cleanup(func() { y.inUse.Close(); y.drop(nil) })
	return y
}

func (y *trying) build(content string) *providers.Transformers {
	y.t.Helper()
	if y.parsed[content] == nil {
		c, err := config.Parse([]byte(content), config.Options{Reload: true, KMSv1: true})
		require.NoError(y.t, err)
		y.parsed[content] = c
	}
	built, err := providers.Build(y.parsed[content], y.options, y.inUse, y.last)
	require.NoError(y.t, err)
	return built
}

func (y *trying) drop(next *providers.Transformers) {
	if y.last != nil {
		y.last.Close()
	}
	y.last = next
}

// again tries a file once more.
func (y *trying) again(content string) error {
	y.t.Helper()
	y.drop(y.build(content))
	return y.last.Prepare(y.t.Context())
}

func (y *trying) commit() {
	y.last.Commit(func() {})
	y.inUse.Close()
	y.inUse, y.last = y.last, nil
}

func kmsV1(name, socket string) string {
	return fmt.Sprintf("kms: {apiVersion: v1, name: %s, endpoint: 'unix:///%s'}", name, socket)
}

// triesOf is how often a file is tried: ten thousand times where that asks most of a
// provider.
func triesOf(name string) int {
	if name == "P is only read with" || name == "P v1 writes" {
		return 10000
	}
	return 1000
}

// The file in use reads with P and Q is away, or neither is in it.
func TestTriesOfAFileLeaveNoTrace(t *testing.T) {
	p, q := faultplugin.Start(t), faultplugin.New(t)
	away := rule("configmaps", kms("away", q))
	for name, c := range map[string]struct{ inUse, next string }{
		"P is only read with":    {rule("secrets", gcmKey, kms("a", p)), rule("secrets", kms("a", p), gcmKey) + away},
		"P is not in use":        {rule("secrets", gcmKey), rule("secrets", kms("a", p), gcmKey) + away},
		"P writes":               {rule("secrets", kms("a", p), gcmKey), rule("secrets", kms("a", p), gcmKey) + rule("pods", kms("b", p)) + away},
		"P v1 is only read with": {rule("secrets", gcmKey, kmsV1("a", "p")), rule("secrets", kmsV1("a", "p"), gcmKey) + away},
		"P v1 is not in use":     {rule("secrets", gcmKey), rule("secrets", kmsV1("a", "p"), gcmKey) + away},
		"P v1 writes":            {rule("secrets", kmsV1("a", "p"), gcmKey), rule("secrets", kmsV1("a", "p"), gcmKey) + rule("pods", kmsV1("b", "p")) + away},
	} {
		t.Run(name, func(t *testing.T) {
			y := try(t, fileOf(c.inUse))
			require.Eventually(t, func() bool {
				for _, h := range y.inUse.Health() {
					if h.Endpoint == p.Endpoint() && h.KeyIDHash == "" {
						return false
					}
				}
				return true
			}, 30*time.Second, time.Millisecond)
			object := write(t, y.inUse, secrets, "v")
			before, dials := y.inUse.Health(), y.dials
			v2, v1 := p.Calls().Encrypt, y.v1.Encrypts.Load()
			for range triesOf(name) {
				require.Error(t, y.again(fileOf(c.next)))
			}
			require.Equal(t, before, y.inUse.Health())
			require.LessOrEqual(t, p.Calls().Encrypt-v2+int(y.v1.Encrypts.Load()-v1), 1, "one candidate")
			require.LessOrEqual(t, y.dials-dials, 2, "each plugin was reached for once")
			got, _ := read(t, y.inUse, secrets, object)
			require.Equal(t, "v", got)

			// The time has come: what was made ready is written with at once.
			q.Serve()
			require.Eventually(t, func() bool {
				y.clock.Step(time.Second)
				return y.again(fileOf(c.next)) == nil
			}, 30*time.Second, time.Millisecond)
			y.commit()
			write(t, y.inUse, secrets, "v")
			write(t, y.inUse, configmaps, "v")
			q.Kill()
		})
	}
}

// The same over a day of tries, one each ten seconds, while the plugins in use
// are followed.
func TestADayOfTriesCostsAPluginOneDEK(t *testing.T) {
	p, q := faultplugin.Start(t), faultplugin.New(t)
	y := try(t, fileOf(rule("secrets", gcmKey, kms("a", p))))
	next := fileOf(rule("secrets", kms("a", p), gcmKey), rule("configmaps", kms("away", q)))
	const tries = int(24 * time.Hour / (10 * time.Second))
	for range tries {
		y.clock.Step(10 * time.Second)
		require.Error(t, y.again(next))
	}
	calls := p.Calls()
	require.Equal(t, 1, calls.Encrypt)
	require.LessOrEqual(t, calls.Decrypt, tries)
	h := y.inUse.Health()[0]
	require.Equal(t, healthz.Reads, h.Role)
	require.Empty(t, h.Problem)
	require.Zero(t, h.CachedDEKs)
	require.Empty(t, h.WritesFor)
	require.Equal(t, 2, y.dials)
}

// What a plugin says of itself while a file is tried is known, and its role and
// key_id stay what they are.
func TestATryOfAFileThatPutsAPluginFirstDoesNotMakeItWrite(t *testing.T) {
	p, q := faultplugin.Start(t), faultplugin.New(t)
	y := try(t, fileOf(rule("secrets", gcmKey, kms("a", p))))
	require.Eventually(t, func() bool { return y.inUse.Health()[0].KeyIDHash != "" }, 30*time.Second, time.Millisecond)
	p.Set(func(b *faultplugin.Behaviour) { b.Healthz = "cannot encrypt" })
	y.clock.Step(10 * time.Second)
	require.Error(t, y.again(fileOf(rule("secrets", kms("a", p), gcmKey), rule("pods", kms("b", q)))))
	for range 2 {
		h := y.inUse.Health()[0]
		require.Equal(t, healthz.Reads, h.Role)
		require.True(t, h.Ready())
		require.Empty(t, h.WritesFor)
		require.Equal(t, envelope.HashKeyID("1"), h.KeyIDHash)
		require.False(t, h.LastHealthy.IsZero())
		y.drop(nil)
	}
	p.Heal("1")
	y.clock.Step(10 * time.Second)
	require.NoError(t, y.again(fileOf(rule("secrets", kms("a", p), gcmKey))))
	y.commit()
	require.True(t, bytes.HasPrefix(write(t, y.inUse, secrets, "v"), []byte("k8s:enc:kms:v2:a:")))
}

// A plugin that only a try reached is left when the try is dropped.
func TestAPluginThatOnlyATryReachedIsClosedWithIt(t *testing.T) {
	q := faultplugin.New(t)
	y := try(t, fileOf(rule("secrets", gcmKey)))
	next := fileOf(rule("secrets", kmsV1("a", "p"), gcmKey), rule("configmaps", kms("away", q)))
	require.Error(t, y.again(next))
	require.Error(t, y.again(next))
	require.Zero(t, y.v1.Closes.Load())
	y.drop(nil)
	require.EqualValues(t, 1, y.v1.Closes.Load())
	require.Error(t, y.again(next))
	require.Equal(t, 4, y.dials, "another connection to each")
}
