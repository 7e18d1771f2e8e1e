package providers_test

import (
	"crypto/fips140"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// Asking for the health of a plugin calls nobody, however often it is done;
// kube-apiserver's check calls Status whenever its last answer has aged.
func TestAskingForHealthCallsNobody(t *testing.T) {
	p, away := faultplugin.Start(t), faultplugin.New(t)
	x := begun(t, fileOf(rule("secrets", kms("a", p)), rule("pods", kms("b", away))), atRest(testingclock.NewFakeClock(start)))
	before := p.Calls()
	for range 1000 {
		h := x.Health()
		require.Empty(t, h[0].Problem)
		require.NotEmpty(t, h[1].Problem)
	}
	require.Equal(t, before, p.Calls())
	require.Equal(t, faultplugin.Calls{Status: 1, Encrypt: 1, Decrypt: 1}, before)
}

// Masking is found before any plugin is called; kube-apiserver has called those
// of the entries before by then.
func TestAFileIsJudgedWithoutItsPlugins(t *testing.T) {
	p := faultplugin.Start(t)
	content := []byte(fileOf(rule("'*.*'", kms("a", p)), rule("secrets", kms("b", p))))
	_, err := config.Parse(content, config.Options{})
	require.ErrorContains(t, err, "masked")
	require.Zero(t, p.Calls())

	file := filepath.Join(t.TempDir(), "masked.yaml")
	require.NoError(t, os.WriteFile(file, content, 0o600))
	fips140.WithoutEnforcement(func() {
		_, err = encryptionconfig.LoadEncryptionConfig(t.Context(), file, false, "test")
	})
	require.ErrorContains(t, err, "masked")
	require.NotZero(t, p.Calls())
}

// Of two plugins each has its own health: one goes away and comes back, then the
// other, then both.
func TestEachPluginHasItsOwnHealth(t *testing.T) {
	plugins := []*faultplugin.Plugin{faultplugin.Start(t), faultplugin.Start(t)}
	clock := testingclock.NewFakeClock(start)
	x := begun(t, fileOf(rule("secrets", kms("first", plugins[0])), rule("pods", kms("second", plugins[1]))), atRest(clock))
	is := func(first, second string) {
		t.Helper()
		require.Eventually(t, func() bool {
			clock.Step(100 * time.Millisecond)
			h := x.Health()
			return h[0].Problem == first && h[1].Problem == second
		}, 30*time.Second, time.Millisecond)
	}
	is("", "")
	plugins[0].Kill()
	is("unreachable", "")
	plugins[0].Serve()
	is("", "")
	plugins[1].Kill()
	is("", "unreachable")
	plugins[0].Kill()
	is("unreachable", "unreachable")
	plugins[0].Serve()
	plugins[1].Serve()
	is("", "")
}
