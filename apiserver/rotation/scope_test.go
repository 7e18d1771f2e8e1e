package rotation

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
)

// Secrets are in an etcd of their own. Beside the other resources another apiserver stores
// under a prefix that nobody told of, and the new plugin of cp-2 cannot decrypt. Nothing
// may go while that is so, however often the command is killed.
func TestARotationKnowsItsWholeScope(t *testing.T) {
	old, new := newKeys(t), newKeys(t)
	c := plan{provider: "old", keys: old, resources: []string{"secrets", "configmaps"}, programs: []string{harness.HurriedServer}, apart: []string{"secrets"}}.start(t)
	c.startPlugins(t, "new", new)
	const deaf = 1 // cp-2
	c.replacePlugin(t, c.nodes[deaf], "new", deafPlugin, new.Path())
	forgotten := c.startForgotten(t)
	c.fillConfigMaps(t)
	load := startLoad(t, c)
	over := load.Outage(names[deaf]) // it cannot read what the others write

	command := c.rotate(t, "two-plugins", append(c.toNew(), unhurried...)...)
	killer := newKiller(t, c, load, command)
	killer.onlyAtrest = true
	killer.until(t, "it tells that cp-2 cannot decrypt", func() bool { return command.tellsDeaf(names[deaf]) })
	command.requireNothingMayGo(t)
	require.Contains(t, c.stored(t), under{"old", old.newest(t)}, "it has been rewritten")
	since := time.Now()
	c.startPlugin(t, c.nodes[deaf], "new", new)
	killer.until(t, "cp-2 is back", func() bool { return c.nodes[deaf].reaches("new", since) && c.current(t.Context(), load) })
	over()

	killer.until(t, "it tells of what is left under another prefix", command.tellsLeft)
	command.requireNothingMayGo(t)
	require.Contains(t, c.stored(t), under{"old", old.newest(t)})
	forgotten.remove(t)
	killer.finish(t)
	require.Equal(t, map[under]int{{"new", new.newest(t)}: 1}, some(c.stored(t)))
	for _, n := range c.nodes {
		c.stopPlugin(n, "old")
	}
	c.restart()
	load.RequireRead(t)
}

const otherPrefix = "/elsewhere"

// forgotten is an apiserver on the first etcd that nobody told of: it stores under a prefix
// of its own.
type forgotten struct{ *harness.Server }

// startForgotten has it store some Secrets, with the plugin of the first apiserver.
func (c *cluster) startForgotten(t *testing.T) forgotten {
	t.Helper()
	kms := fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: %q}", c.plan.provider, c.endpoint(names[0], c.plan.provider))
	config := harness.NewConfigFile(t, harness.Entry("secrets", kms, harness.Identity))
	f := forgotten{harness.Start(t, harness.Spec{Program: harness.HurriedServer, Host: "forgotten", Etcd: c.etcds[0].options,
		Flags: append(config.Flags(), "--etcd-prefix="+otherPrefix)})}
	for i := range 3 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("forgotten-%d", i)}}
		_, err := f.Kube.CoreV1().Secrets(traffic.Namespace).Create(t.Context(), secret, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return f
}

// remove deletes all that it stores under the plugin.
func (f forgotten) remove(t *testing.T) {
	t.Helper()
	require.NoError(t, f.Kube.CoreV1().Secrets(traffic.Namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// fillConfigMaps makes some that only a migration writes again.
func (c *cluster) fillConfigMaps(t *testing.T) {
	t.Helper()
	for i := range 20 {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("still-%02d", i)}}
		_, err := c.nodes[0].Kube.CoreV1().ConfigMaps(traffic.Namespace).Create(t.Context(), configMap, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}
