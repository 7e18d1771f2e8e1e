package nodes

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/node"
)

// change is a step in which another bundle comes into effect.
func (f *fleet) change(what string, a asks) {
	f.t.Helper()
	f.give(a)
	f.underFire(what, f.settled)
}

// refuse is a step in which another bundle does not come into effect, for a reason.
func (f *fleet) refuse(what string, a asks, why string) {
	f.t.Helper()
	former, files := f.wish, f.files()
	f.give(a)
	f.wish = former
	f.inPlace(what, func() { f.until("the reason is told: "+why, func(m *machine) bool { return f.isRefused(m, why) }) })
	require.Equal(f.t, files, f.files(), "the configuration files")
}

// isRefused reports whether the former bundle is in effect and well, and the reason is told.
func (f *fleet) isRefused(m *machine, why string) bool {
	r := m.report()
	if r == nil || r.Wanted == nil || r.Wanted.Revision != f.revision || len(r.Waits) == 0 {
		return false
	}
	require.NotNil(f.t, r.InEffect, m.name)
	require.Less(f.t, r.InEffect.Revision, f.revision, m.name)
	return strings.Contains(strings.Join(append(r.Waits, r.Problems...), "\n"), why) && f.areWell(m, r) && f.follows(m)
}

func (f *fleet) files() map[string]string {
	f.t.Helper()
	all := map[string]string{}
	for _, m := range f.machines {
		content, err := os.ReadFile(m.config())
		require.NoError(f.t, err)
		all[m.name] = string(content)
	}
	return all
}

// newCredential has the plugins of a Vault log in with another secret-id.
func (f *fleet) newCredential(v *vault) {
	f.t.Helper()
	revoke := v.newCredential()
	f.give(f.asks)
	f.inPlace("a new credential", func() {
		f.settled()
		count := 0
		for _, p := range f.wish {
			if p.Parts[secretIDPart] != nil {
				count += len(f.machines)
				f.until("the plugin has it", func(m *machine) bool { return bytes.Equal(m.file(p.KeyID, secretIDPart), []byte(v.secretID)) })
			}
		}
		logins := v.door.logins.Load()
		revoke()
		f.until("they have logged in anew", func(*machine) bool { return v.door.logins.Load() >= logins+int64(count) })
		f.settled()
	})
	for _, m := range f.machines {
		m.requireUnexposed(v.secretID)
	}
}

// requireUnexposed requires that no argument and no log has a credential.
func (m *machine) requireUnexposed(secret string) {
	m.t.Helper()
	require.NotContains(m.t, m.node.Log(), secret)
	for _, i := range m.instances() {
		arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", i.pid))
		require.NoError(m.t, err)
		require.Contains(m.t, string(arguments), i.Socket)
		require.NotContains(m.t, string(arguments), secret)
	}
}

// newCA has the plugins of a Vault trust another CA, before Vault shows a certificate of that one and
// after it has shown one of the former for the last time.
func (f *fleet) newCA(v *vault) {
	f.t.Helper()
	former := v.ca
	next, ca := v.door.issue()
	v.ca = append(bytes.Clone(former), ca...)
	f.give(f.asks)
	f.inPlace("a new CA beside the former", func() {
		f.settled()
		v.door.show(next)
		answered := v.door.answered.Load()
		f.until("Vault is asked again", func(*machine) bool { return v.door.answered.Load() >= answered+int64(20*len(f.machines)) })
		f.settled()
	})
	v.ca = ca
	f.give(f.asks)
	f.inPlace("the new CA alone", f.settled)
}

// file is what a plugin has as a part.
func (m *machine) file(keyID bundle.KeyID, part bundle.Part) []byte {
	m.t.Helper()
	i, ok := m.plugin(keyID)
	if !ok {
		return nil
	}
	content, err := os.ReadFile(filepath.Join(i.Files(), part.FileName(keyID)))
	if err != nil {
		return nil // it is just being replaced
	}
	return content
}

// rewrite has everything be stored again that is encrypted, so that it is under the key that writes.
func (f *fleet) rewrite() {
	f.t.Helper()
	secrets := f.machines[0].api.Kube.CoreV1()
	all, err := secrets.Secrets("").List(f.t.Context(), metav1.ListOptions{})
	require.NoError(f.t, err)
	for i := range all.Items {
		s := &all.Items[i]
		_, err := secrets.Secrets(s.Namespace).Update(f.t.Context(), s, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // somebody else wrote it again, or it is gone
			require.NoError(f.t, err)
		}
	}
}

// providers are those that Secrets are stored with, as the bytes in etcd say.
func (f *fleet) providers() []string {
	f.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{f.member.Endpoint()}, Logger: zap.NewNop()})
	require.NoError(f.t, err)
	defer client.Close()
	found, err := client.Get(f.t.Context(), "/registry/secrets/", clientv3.WithPrefix())
	require.NoError(f.t, err)
	all := map[string]bool{}
	for _, kv := range found.Kvs {
		rest, sealed := strings.CutPrefix(string(kv.Value), "k8s:enc:kms:v2:")
		require.True(f.t, sealed, "%s is not sealed", kv.Key)
		require.NotContains(f.t, string(kv.Value), traffic.Password)
		provider, _, _ := strings.Cut(rest, ":")
		all[provider] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// misbehave tries a plugin that does wrong beside those that are in use: it comes into effect once it is well,
// and what it does wrong afterwards harms nobody.
func (f *fleet) misbehave(bad *faulty, keyID bundle.KeyID) {
	f.t.Helper()
	before := f.asks
	with := func() wish { return append(before(), bad.plugin(keyID)) }
	bad.become(fails)
	f.refuse("a plugin that fails", with, "its plugin answers, and does not work")
	bad.become(hangs)
	f.inPlace("it hangs", func() {
		f.until("that is told", func(m *machine) bool { return f.isRefused(m, "its plugin does not answer yet") })
	})
	bad.become(lies)
	f.inPlace("it lies", func() {
		f.until("that is told", func(m *machine) bool { return m.finds(plugin.BadAnswer) })
	})
	f.wish = with()
	bad.become(well)
	f.underFire("it is well", f.settled)
	bad.become(hangs)
	f.inPlace("it hangs while it is in use", func() {
		f.until("that is told", func(m *machine) bool { return m.finds(plugin.TimedOut) })
	})
	f.change("it is taken away", before)
}

// finds reports whether the node has found a problem at a plugin.
func (m *machine) finds(problem plugin.Problem) bool {
	r := m.report()
	return r != nil && slices.ContainsFunc(r.Plugins, func(p node.PluginReport) bool { return !p.Well && p.Class == problem })
}
