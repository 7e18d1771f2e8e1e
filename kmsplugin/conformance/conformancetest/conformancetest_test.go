package conformancetest_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/kmsplugin/conformance"
	"github.com/kube-atrest/atrest/kmsplugin/conformance/conformancetest"
)

// flaw in the environment has TestOfAPlugin run on a plugin with that flaw.
const flaw = "ATREST_CONFORMANCE_FLAW"

func TestOfAPlugin(t *testing.T) {
	p := faultplugin.StartKMS(t, faultplugin.Flaw(os.Getenv(flaw)))
	conformancetest.Run(t, conformance.Target{Endpoint: p.Endpoint()}, conformance.Options{Only: []string{"status-version", "annotations", "rotation-shows"}})
}

func TestAPluginWithAFlawFailsTheTest(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(program, "-test.v", "-test.run", "^TestOfAPlugin$")
	command.Env = append(os.Environ(), flaw+"="+string(faultplugin.OldVersion))
	out, err := command.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "--- FAIL: TestOfAPlugin/status-version")
	require.Contains(t, string(out), `status-version failed: the version is "v1"`)
	require.Contains(t, string(out), "an apiserver suffers: it takes the plugin for unhealthy for ever")
	require.Contains(t, string(out), "source: KEP-3299")
	require.Contains(t, string(out), "--- PASS: TestOfAPlugin/annotations")
	require.Contains(t, string(out), "--- SKIP: TestOfAPlugin/rotation-shows")
	require.Contains(t, string(out), "it needs rotate")
}
