package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/internal/stored"
)

// The members of a fleet, and what each writes with KMS v2.
var members = map[string]struct {
	program string
	flags   []string
	writes  stored.SourceType
}{
	"stock":   {stockServer, nil, stored.SourceSeed},
	"counter": {hurriedServer, []string{"--encryption-kms-dek-source=counter"}, stored.SourceDEK},
	"seed":    {hurriedServer, []string{"--encryption-kms-dek-source=seed"}, stored.SourceSeed},
}

// fleet is several apiservers on one etcd, with the same file and the same plugins.
type fleet struct {
	etcd    *etcd.Server
	plugin  harness.Plugin
	config  *harness.ConfigFile
	running map[string]*harness.Server
	objects []object
	touches int
}

var secrets = coreKind("secrets", "Secret")

// kept are the kinds of object in a fleet, and how each begins in etcd.
var kept = []struct {
	kind
	prefix string
}{
	{secrets, "k8s:enc:kms:v2:two:"},
	{coreKind("serviceaccounts", "ServiceAccount"), "k8s:enc:kms:v1:one:"},
	{coreKind("configmaps", "ConfigMap"), "k8s:enc:aescbc:v1:c:"},
	{coreKind("limitranges", "LimitRange"), "k8s:enc:aesgcm:v1:g:"},
	{coreKind("resourcequotas", "ResourceQuota"), "k8s:enc:secretbox:v1:s:"},
	{revisions(), "k8s:enc:aesgcm:v1:w:"},
	{templates(), "k8s\x00"}, // identity: protobuf as it is
}

func templates() kind {
	k := coreKind("podtemplates", "PodTemplate")
	container := map[string]any{"name": "c", "image": "i"}
	k.fields = map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}}
	return k
}

func revisions() kind {
	k := coreKind("controllerrevisions", "ControllerRevision")
	k.resource = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "controllerrevisions"}
	k.fields = map[string]any{"revision": int64(1), "data": map[string]any{}}
	return k
}

// newFleet prepares a fleet in which nobody runs yet.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	const key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	local := func(provider, name string) string {
		return fmt.Sprintf("%s: {keys: [{name: %s, secret: %s}]}", provider, name, key)
	}
	plugin := harness.StartPlugin(t)
	config := harness.NewConfigFile(t,
		harness.Entry("secrets", plugin.KMS("two"), harness.Identity),
		harness.Entry("serviceaccounts", harness.StartKMSv1(t, "one"), harness.Identity),
		harness.Entry("configmaps", local("aescbc", "c"), local("aesgcm", "g"), harness.Identity),
		harness.Entry("limitranges", local("aesgcm", "g"), harness.Identity),
		harness.Entry("resourcequotas", local("secretbox", "s"), harness.Identity),
		harness.Entry("podtemplates", harness.Identity, local("aescbc", "c")),
		harness.Entry("'*.apps'", local("aesgcm", "w"), harness.Identity),
	)
	return &fleet{etcd: harness.Etcd(t), plugin: plugin, config: config, running: map[string]*harness.Server{}}
}

// start adds members and returns once they are ready.
func (f *fleet) start(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		member := members[name]
		flags := append(append(f.config.Flags(), "--feature-gates=KMSv1=true"), member.flags...)
		f.running[name] = harness.Launch(t, harness.Spec{Program: member.program, Etcd: f.etcd, Flags: flags})
	}
	for _, name := range names {
		f.running[name].WaitFor("/readyz")
	}
}

// stop ends members as an operator would.
func (f *fleet) stop(names ...string) {
	for _, name := range names {
		f.running[name].Stop()
		delete(f.running, name)
	}
}

// write makes one object of each kind through a member.
func (f *fleet) write(t *testing.T, member string) {
	t.Helper()
	for _, k := range kept {
		name := fmt.Sprintf("by-%s-%d", member, len(f.objects))
		o := object{kind: k.kind, name: name, hidden: password + "-" + name}
		o.create(t, f.running[member])
		f.objects = append(f.objects, o)
		requirePrefix(t, f.etcd, o, k.prefix)
	}
}

// share has every running member update every object, and every other read each update.
func (f *fleet) share(t *testing.T, objects []object) {
	t.Helper()
	for _, o := range objects {
		for name := range f.running {
			f.touch(t, o, name)
		}
	}
}

// touch updates o through the member and reads it through all, from etcd and from their
// watch caches.
func (f *fleet) touch(t *testing.T, o object, member string) {
	t.Helper()
	f.touches++
	mark := fmt.Sprintf("%s-%d", member, f.touches)
	version := o.touch(t, f.running[member], mark)
	for _, reader := range f.running {
		require.Equal(t, mark, o.get(t, reader).GetAnnotations()[touchedIn])
		require.Equal(t, mark, o.cached(t, reader, version).GetAnnotations()[touchedIn])
	}
	for _, k := range kept {
		if k.resource == o.resource {
			requirePrefix(t, f.etcd, o, k.prefix)
		}
	}
}

func requirePrefix(t *testing.T, e *etcd.Server, o object, prefix string) {
	t.Helper()
	raw := string(rawAt(t, e, o.etcdKey()))
	require.True(t, strings.HasPrefix(raw, prefix), "%s begins with %q", o.etcdKey(), raw[:min(len(raw), len(prefix))])
	require.Equal(t, strings.HasPrefix(prefix, "k8s:enc:"), !strings.Contains(raw, o.hidden))
}

// secrets are the objects that are sealed with KMS v2.
func (f *fleet) secrets() (all []object) {
	for _, o := range f.objects {
		if o.resource == secrets.resource {
			all = append(all, o)
		}
	}
	return all
}

// source is what o was last sealed with.
func (f *fleet) source(t *testing.T, o object) stored.DEKSource {
	t.Helper()
	return sealedAt(t, f.etcd, o.etcdKey(), "two", o.hidden).Source
}

// keyIDs are those that the running members write a Secret under now, each with its
// source type.
func (f *fleet) keyIDs(t *testing.T, probe object) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	for name := range f.running {
		f.touch(t, probe, name)
		source := f.source(t, probe)
		require.Equal(t, members[name].writes, source.Type, name)
		ids[source.KeyID] = true
	}
	return ids
}

// rotate gives the plugin a new key and returns when all members write under it. All the
// while every Secret in turn is updated by every member and read by the others: by those
// that know of the new key, and by those that do not yet.
func (f *fleet) rotate(t *testing.T) {
	t.Helper()
	shared := f.secrets()
	before := f.keyIDs(t, shared[0])
	require.Len(t, before, 1)
	require.NoError(t, f.plugin.Rotate(t.Context()))
	rounds, apart := 0, 0
	until(t, "every member writes under the new key_id", func() bool {
		// A stock server asks its plugins when its check is read, 20 s after it last did;
		// by itself, after a minute.
		for _, s := range f.running {
			requireStatus(t, s, http.StatusOK, check)
		}
		now := f.keyIDs(t, shared[rounds%len(shared)])
		rounds++
		if len(now) > 1 {
			apart++
		}
		return len(now) == 1 && !maps.Equal(before, now)
	})
	t.Logf("%d members shared %d Secrets in %d rounds, in %d of them under two key_ids", len(f.running), len(shared), rounds, apart)
}

// requireSettled has every member update every object without a change, over and over:
// what a member finds stale it writes once, and then nobody writes anything.
func (f *fleet) requireSettled(t *testing.T) {
	t.Helper()
	for _, o := range f.objects {
		for round := range 3 {
			for name, s := range f.running {
				written := o.update(t, s)
				require.False(t, written && round > 0, "%s %s is written again by %s in round %d", o.kind.name, o.name, name, round)
			}
		}
	}
}
