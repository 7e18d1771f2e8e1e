package rotation

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
)

// transit is a key of Vault, and what a plugin needs to use it. Vault is a fake, or a real
// one where the environment says so.
type transit struct {
	*vaulttest.Server
	flags   []string
	program string
}

// kek is the name of the key.
const kek = "kube"

func startTransit(t *testing.T) *transit {
	t.Helper()
	v := &transit{Server: vaulttest.Start(t), program: harness.KMSPlugin(t)}
	v.CreateKey(kek, "")
	where := []string{"--vault-address", v.Address, "--tls-ca-file", v.CA, "--vault-key-path", "transit/keys/" + kek}
	policy, err := exec.Command(v.program, append([]string{"vault", "policy"}, where[4:]...)...).Output()
	require.NoError(t, err)
	v.Policy("plugin", string(policy))
	roleID := v.AppRole(vaulttest.Role{Name: "plugin", Policies: []string{"plugin"}, TTL: time.Hour})
	secretID := filepath.Join(t.TempDir(), "secret-id")
	require.NoError(t, os.WriteFile(secretID, []byte(v.SecretID("plugin")), 0o600))
	v.flags = append(where, "--approle-role-id", roleID, "--approle-secret-id-file", secretID)
	return v
}

// serve runs the plugin as an operator does, but that it looks more often.
func (v *transit) serve(t *testing.T, endpoint string) *harness.Process {
	t.Helper()
	return harness.RunFile(t, v.program, append([]string{"vault", "serve", "--listen", endpoint, "--poll", "200ms"}, v.flags...)...)
}

func (v *transit) cluster(t *testing.T) *cluster {
	t.Helper()
	return plan{provider: "vault", vault: v, resources: []string{"secrets"}, programs: []string{harness.HurriedServer}}.start(t)
}

// announced is the key_id that the plugin of the first apiserver names.
func (c *cluster) announced(t *testing.T) string {
	t.Helper()
	status, err := plugintest.Dial(t, c.endpoint(names[0], c.plan.provider)).Status(t.Context(), &kmsapi.StatusRequest{})
	require.NoError(t, err)
	require.Equal(t, "ok", status.Healthz)
	return status.KeyId
}

// retire is what "atrest retire" ends with and says of a key_id. It goes by its hash: once
// nothing knows it, what looks like a hash may be taken for one.
func (c *cluster) retire(t *testing.T, keyID string) (code int, text string) {
	t.Helper()
	p := harness.RunFile(t, c.program, append([]string{"retire", hashed.ID(keyID), "--key-id", "--apiservers", strings.Join(names, ","),
		"--kubeconfig", c.kubeconfig(t), "--endpoints", c.etcds[0].options.Endpoint()}, c.overrides()...)...)
	<-p.Exited()
	t.Logf("atrest retire:\n%s", p.Log())
	return p.Exit(), p.Log()
}

// The way of a version of Transit: written with, rotated, shown to be needed by nothing, and
// then gone for good.
func TestAVersionOfTransitIsTrimmedWhileTheClusterServes(t *testing.T) {
	t.Parallel()
	v := startTransit(t)
	c := v.cluster(t)
	load := startLoad(t, c)
	load.More(t, 20)
	old := c.announced(t)
	code, text := c.retire(t, old)
	require.Equal(t, 1, code, text)

	command := c.rotate(t, "one-plugin", "--provider", "vault", "--from", "current")
	command.says(t, "not rotated")
	v.Rotate(kek)
	command.wait(t)
	load.More(t, 20)
	next := c.announced(t)
	require.NotEqual(t, old, next)
	code, text = c.retire(t, old)
	require.Zero(t, code, text)

	v.Trim(kek, 2)
	require.EqualValues(t, 2, v.Read("transit/keys/" + kek)["min_available_version"])
	load.More(t, 20)
	load.RequireUndisturbed(t)
	c.requireStored(t, load, "vault", next)
	require.Equal(t, next, c.announced(t))
	c.restart()
	load.RequireRead(t)
	c.requireWell(t)
}

// Whoever seals Vault stops writing, after the time for which an apiserver goes on, and
// nothing else.
func TestNoReadFailsWhileVaultIsSealed(t *testing.T) {
	t.Parallel()
	v := startTransit(t)
	c := v.cluster(t)
	load := startLoad(t, c)
	load.More(t, 50)
	c.requireKnown(t, load)

	over := load.OutageOfWrites()
	v.Seal()
	traffic.Until(t, "writes are refused", func() bool { _, retries := load.Counted(); return retries > 0 })
	reads, _ := load.Counted()
	traffic.Until(t, "there are more reads", func() bool { now, _ := load.Counted(); return now >= reads+100 })
	for _, n := range c.nodes {
		status, text := n.Get("/readyz/kms-providers")
		require.Equal(t, http.StatusInternalServerError, status)
		require.Contains(t, text, "sealed", "what the plugin says gets to whoever looks")
	}
	from := time.Now()
	v.Unseal()
	for _, n := range c.nodes {
		traffic.Until(t, "the plugin is found well", func() bool { return n.reaches("vault", from) })
	}
	over()
	load.More(t, 20)
	load.RequireNoFailure(t)
	load.RequireRead(t)
	c.requireWell(t)
}

// requireKnown has every apiserver read all Secrets, so that it knows the data keys of the
// others.
func (c *cluster) requireKnown(t *testing.T, l *traffic.Load) {
	t.Helper()
	for _, n := range c.nodes {
		require.NoError(t, l.Current(t.Context(), n.name), n.name)
	}
}
