package rotation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// names are those of the apiservers, which the command knows them by too.
var names = []string{"cp-1", "cp-2", "cp-3"}

// cluster is a control plane of three apiservers on an etcd, or on two. Every process of
// it can be killed.
type cluster struct {
	plan    plan
	etcds   []*member
	nodes   []*node
	program string // atrest
	sockets string // folder
	configs string // folder
}

// plan says what a cluster is made of.
type plan struct {
	// provider writes, with these keys, and resources are what it writes.
	provider  string
	keys      keys
	resources []string
	// vault, if set, has the keys of provider instead.
	vault *transit
	// programs are those of the apiservers. The last one is also that of those for which
	// none is named.
	programs []string
	// apart are resources of the core group that an etcd of their own holds.
	apart []string
	// flags are further ones of the apiservers.
	flags []string
	// fixed has them not follow their files.
	fixed bool
}

// member is an etcd, which holds these resources of the core group, or all others if there
// are none.
type member struct {
	*harness.Process
	options etcd.Options
	client  *clientv3.Client
	holds   []string
}

// node is an apiserver with its plugins by provider, and the file that names them.
type node struct {
	name string
	*harness.Server
	config  *harness.ConfigFile
	plugins map[string]*harness.Process
}

// keys are the versions of a key, in a file.
type keys struct{ *keyfile.File }

func newKeys(t *testing.T) keys {
	t.Helper()
	k := keys{keyfile.At(filepath.Join(t.TempDir(), "keys"))}
	_, err := k.Create(t.Context())
	require.NoError(t, err)
	return k
}

// rotate makes a new version, and with it a new key_id.
func (k keys) rotate(t *testing.T) {
	t.Helper()
	_, err := k.Rotate(t.Context())
	require.NoError(t, err)
}

// newest is the key_id that is wrapped under.
func (k keys) newest(t *testing.T) string {
	t.Helper()
	all, err := k.List()
	require.NoError(t, err)
	for _, info := range all {
		if info.Writes {
			return info.KeyID
		}
	}
	return ""
}

// copyTo gives another file the same versions, in one step.
func (k keys) copyTo(t *testing.T, other keys) {
	t.Helper()
	content, err := os.ReadFile(k.Path())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(other.Path()+".next", content, 0o600))
	require.NoError(t, os.Rename(other.Path()+".next", other.Path()))
}

// startCluster runs a cluster on one etcd that writes Secrets with a provider of this name.
func startCluster(t *testing.T, provider string, k keys, programs ...string) *cluster {
	t.Helper()
	return plan{provider: provider, keys: k, resources: []string{"secrets"}, programs: programs}.start(t)
}

func (p plan) start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{plan: p, sockets: harness.SocketDir(t), configs: t.TempDir()}
	c.etcds = append(c.etcds, startMember(t, nil))
	if p.apart != nil {
		c.etcds = append(c.etcds, startMember(t, p.apart))
	}
	for i, name := range names {
		n := &node{name: name, plugins: map[string]*harness.Process{}}
		c.nodes = append(c.nodes, n)
		if p.vault != nil {
			n.plugins[p.provider] = p.vault.serve(t, c.endpoint(name, p.provider))
		} else {
			c.startPlugin(t, n, p.provider, p.keys)
		}
		n.config = harness.NewConfigFileAt(t, filepath.Join(c.configs, name+".yaml"), c.entry(n, p.provider))
		flags := slices.Concat(n.config.Flags(), c.overrides(), p.flags)
		if p.fixed {
			flags = append(flags, "--encryption-provider-config-automatic-reload=false")
		}
		n.Server = harness.Launch(t, harness.Spec{Program: p.programs[min(i, len(p.programs)-1)], Host: name, Etcd: c.etcds[0].options, Flags: flags})
	}
	t.Cleanup(c.kill)             // nobody needs their orderly end
	c.program = harness.Atrest(t) // built before there is any load
	c.wait()
	return c
}

func startMember(t *testing.T, holds []string) *member {
	t.Helper()
	options := etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), SocketDir: harness.SocketDir(t)}
	return &member{harness.Run(t, harness.EtcdMember, options.DataDir, options.SocketDir), options, dial(t, options.Endpoint()), holds}
}

// overrides are the flags that say which etcd holds what, to an apiserver and to atrest.
func (c *cluster) overrides() (flags []string) {
	for _, m := range c.etcds {
		for _, resource := range m.holds {
			flags = append(flags, "--etcd-servers-overrides=/"+resource+"#"+m.options.Endpoint())
		}
	}
	return flags
}

func dial(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() }) // its only error is the context that closing ends
	return client
}

// wait returns once every apiserver is ready.
func (c *cluster) wait() {
	for _, n := range c.nodes {
		n.WaitFor("/readyz")
	}
}

// restart ends all apiservers and starts them again, so that they no longer know any key.
func (c *cluster) restart() {
	c.kill()
	for _, n := range c.nodes {
		n.Restart()
	}
	c.wait()
}

// kill ends all apiservers.
func (c *cluster) kill() {
	for _, n := range c.nodes {
		n.Kill()
	}
}

// startPlugin runs the plugin of a provider beside an apiserver.
func (c *cluster) startPlugin(t *testing.T, n *node, provider string, k keys) {
	t.Helper()
	c.replacePlugin(t, n, provider, harness.KeyFilePlugin, k.Path())
}

// startPlugins runs one beside each.
func (c *cluster) startPlugins(t *testing.T, provider string, k keys) {
	t.Helper()
	for _, n := range c.nodes {
		c.startPlugin(t, n, provider, k)
	}
}

// replacePlugin runs a program with these arguments as the plugin of a provider, in the
// place of what runs there.
func (c *cluster) replacePlugin(t *testing.T, n *node, provider, program string, args ...string) {
	t.Helper()
	c.stopPlugin(n, provider)
	n.plugins[provider] = harness.Run(t, program, append(args, c.endpoint(n.name, provider))...)
}

// stopPlugin ends the plugin of a provider for good.
func (c *cluster) stopPlugin(n *node, provider string) {
	if p := n.plugins[provider]; p != nil {
		p.Stop()
	}
	delete(n.plugins, provider)
}

// ready reports whether the apiserver can be asked.
func (n *node) ready() bool {
	status, _, err := n.Try("/readyz")
	return err == nil && status == http.StatusOK
}

// reaches reports whether the apiserver has found the plugin of a provider healthy since
// a moment, or does not need it.
func (n *node) reaches(provider string, since time.Time) bool {
	var s healthz.Status
	if _, text, err := n.Try(healthz.Path); err != nil || json.Unmarshal([]byte(text), &s) != nil {
		return false
	}
	i := slices.IndexFunc(s.Providers, func(p healthz.Provider) bool { return slices.Contains(p.Names, provider) })
	return i < 0 || s.Providers[i].LastHealthy.After(since)
}

// endpoint is where the plugin of a provider beside an apiserver is.
func (c *cluster) endpoint(apiserver, provider string) string {
	return "unix://" + filepath.Join(c.sockets, apiserver+"-"+provider+".sock")
}

// entry encrypts the resources with the providers, in this order.
func (c *cluster) entry(n *node, providers ...string) string {
	var all []string
	for _, p := range providers {
		all = append(all, fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: %q}", p, c.endpoint(n.name, p)))
	}
	return harness.Entry(strings.Join(c.plan.resources, ", "), append(all, harness.Identity)...)
}

// kubeconfig writes a file with a context for every apiserver, by its name.
func (c *cluster) kubeconfig(t *testing.T) string {
	t.Helper()
	all := clientcmdapi.NewConfig()
	for _, n := range c.nodes {
		all.Clusters[n.name] = &clientcmdapi.Cluster{Server: n.Config.Host, CertificateAuthorityData: n.Config.CAData}
		all.AuthInfos[n.name] = &clientcmdapi.AuthInfo{Token: n.Config.BearerToken}
		all.Contexts[n.name] = &clientcmdapi.Context{Cluster: n.name, AuthInfo: n.name}
	}
	all.CurrentContext = c.nodes[0].name
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*all, path))
	return path
}

// startLoad begins with requests through all apiservers.
func startLoad(t *testing.T, c *cluster) *traffic.Load {
	t.Helper()
	var all []traffic.Apiserver
	for _, n := range c.nodes {
		all = append(all, traffic.Apiserver{Name: n.name, Config: n.Config})
	}
	return traffic.Start(t, *objects, all...)
}
