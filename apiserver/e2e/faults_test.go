package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// faulty is a server that writes with one plugin, and has another to read with that is
// not there at the start. It is to write with the next one later.
type faulty struct {
	*harness.Server
	etcd   *etcd.Server
	config *harness.ConfigFile

	writer, reader, next *faultplugin.Plugin
}

// endless is a timeout of calls that is longer than any test: who waits for a plugin that
// hangs waits for ever.
const endless = "timeout: 24h"

func kmsAt(name, endpoint string, more ...string) string {
	fields := append([]string{"apiVersion: v2", "name: " + name, fmt.Sprintf("endpoint: %q", endpoint)}, more...)
	return "kms: {" + strings.Join(fields, ", ") + "}"
}

func startFaulty(t *testing.T) *faulty {
	t.Helper()
	f := &faulty{etcd: harness.Etcd(t), writer: faultplugin.Start(t), reader: faultplugin.New(t), next: faultplugin.New(t)}
	f.config = harness.NewConfigFile(t, f.entry())
	f.Server = harness.Start(t, harness.Spec{Program: hurriedServer, Etcd: f.etcd, Flags: f.config.Flags()})
	return f
}

// entry is that of the file, in which other providers may come first.
func (f *faulty) entry(first ...string) string {
	providers := append(first, kmsAt("one", f.writer.Endpoint(), endless), kmsAt("old", f.reader.Endpoint()), harness.Identity)
	return harness.Entry("secrets, configmaps", providers...)
}

// One server meets one fault after the other, each after it has got over the one before.
func TestAServerGetsOverTheFaultsOfItsPlugins(t *testing.T) {
	t.Parallel()
	f := startFaulty(t)
	for _, fault := range []struct {
		name string
		meet func(*testing.T)
	}{
		{"a dead reader makes nothing unready", f.deadReader},
		{"who is not healthy does not prolong the write window", f.unhealthy},
		{"a plugin that hangs holds up nobody", f.hanging},
		{"a reload waits for its new writer", f.blockedReload},
	} {
		if !t.Run(fault.name, fault.meet) {
			return // what comes next begins where this one should have ended
		}
		requireStatus(t, f.Server, http.StatusOK, "/readyz")
	}
	f.requireSecrecy(t)
}

func (f *faulty) deadReader(t *testing.T) {
	require.NoFileExists(t, strings.TrimPrefix(f.reader.Endpoint(), "unix://"))
	name := writeConfigMap(t, f.Server)
	raw := string(rawAt(t, f.etcd, configMapKey(name)))
	old := strings.Replace(raw, "k8s:enc:kms:v2:one:", "k8s:enc:kms:v2:old:", 1)
	require.NotEqual(t, raw, old)
	_, err := f.etcd.Client().Put(t.Context(), configMapKey(name), old)
	require.NoError(t, err)

	read := func() error {
		_, err := f.Kube.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err
	}
	require.ErrorContains(t, read(), `provider "old"`)
	requireStatus(t, f.Server, http.StatusOK, "/readyz")
	reader := f.provider(t, "old")
	require.Equal(t, []any{healthz.Reads, healthz.Degraded, "unreachable"}, []any{reader.Role, reader.State, reader.Problem})

	f.reader.Serve()
	until(t, "the plugin is found", func() bool { return read() == nil })
	require.Equal(t, password, readConfigMap(t, f.Server, name))
	until(t, "it is well", func() bool { return f.provider(t, "old").State == "ready" })
	reader = f.provider(t, "old")
	require.Equal(t, []any{healthz.Reads, ""}, []any{reader.Role, reader.Problem})
	require.Equal(t, f.provider(t, "one").KeyIDHash, reader.KeyIDHash, "both plugins have the key_id 1")
}

func (f *faulty) unhealthy(t *testing.T) {
	writeSecret(t, f.Server, "before", password)
	wrapped := f.writer.Calls().Encrypt
	f.writer.Set(func(b *faultplugin.Behaviour) { b.Healthz = "the KMS is sick" })
	text := waitForStatus(t, f.Server, http.StatusInternalServerError, check)
	f.requireSameFacts(t, text)
	require.Contains(t, text, `the KMS is sick`)

	var err error
	until(t, "writes end", func() bool { err = f.tryWrite(t); return err != nil })
	require.ErrorContains(t, err, "writing ended "+hurry.WriteWindow.String()+" later")
	answered := f.writer.Calls().Status
	until(t, "Status is asked again and again", func() bool { return f.writer.Calls().Status > answered+3 })
	require.ErrorContains(t, f.tryWrite(t), "the KMS is sick")
	require.Equal(t, password, readSecret(t, f.Server, "before"))

	_, text = f.Get(check)
	require.Contains(t, text, "writes have stopped, reads go on")
	f.requireSameFacts(t, text)
	require.Zero(t, f.provider(t, "one").WritesLeft)
	requireStatus(t, f.Server, http.StatusInternalServerError, "/readyz")
	requireStatus(t, f.Server, http.StatusOK, "/readyz?exclude=kms-providers")
	requireStatus(t, f.Server, http.StatusOK, "/livez")

	f.writer.Heal("1")
	waitForStatus(t, f.Server, http.StatusOK, check)
	require.NoError(t, f.tryWrite(t))
	require.Equal(t, wrapped, f.writer.Calls().Encrypt, "the DEK is the one from before")
}

func (f *faulty) hanging(t *testing.T) {
	f.writer.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	answered := f.writer.Calls().Status
	until(t, "a call of Status hangs", func() bool { return f.writer.Calls().Status > answered })
	hung := f.writer.Calls()

	for range 10 {
		requireStatus(t, f.Server, http.StatusOK, "/readyz?exclude=kms-providers")
		_, text := f.Get("/readyz?verbose")
		require.Contains(t, text, "kms-providers")
		require.Equal(t, password, readSecret(t, f.Server, "before"))
		f.provider(t, "one")
	}
	require.Equal(t, hung, f.writer.Calls(), "nobody but its own loop asks the plugin")
	until(t, "writes end", func() bool { return f.tryWrite(t) != nil })
	requireStatus(t, f.Server, http.StatusInternalServerError, check)
	require.Equal(t, password, readSecret(t, f.Server, "before"))

	f.writer.Kill()
	f.writer.Heal("1")
	f.writer.Serve()
	until(t, "writes go on", func() bool { return f.tryWrite(t) == nil })
	waitForStatus(t, f.Server, http.StatusOK, check)
}

func (f *faulty) blockedReload(t *testing.T) {
	f.config.Write(f.entry(kmsAt("next", f.next.Endpoint())))
	until(t, "the new content is refused", func() bool { return f.state(t).Reload.Outcome == "failed" })
	reload := f.state(t).Reload
	require.True(t, reload.Retrying)
	require.Contains(t, reload.Error, `"next"`)
	require.NotEqual(t, f.state(t).ConfigHash, reload.FailedHash)
	require.Equal(t, 1.0, reloads(t, f.Server, "failure"))
	requireStatus(t, f.Server, http.StatusOK, "/readyz")
	writeSecret(t, f.Server, "meanwhile", password)
	sealedAt(t, f.etcd, secretKey("meanwhile"), "one", password)

	f.next.Serve()
	until(t, "the new content takes effect", func() bool { return f.state(t).ConfigHash == reload.FailedHash })
	require.Equal(t, healthz.Loaded, f.state(t).Reload.Outcome)
	require.Equal(t, []float64{1, 1}, []float64{reloads(t, f.Server, "success"), reloads(t, f.Server, "failure")})
	writeSecret(t, f.Server, "after", password)
	sealedAt(t, f.etcd, secretKey("after"), "next", password)
	require.Equal(t, password, readSecret(t, f.Server, "meanwhile"))
}

// tryWrite creates a Secret with a name of its own.
func (f *faulty) tryWrite(t *testing.T) error {
	t.Helper()
	wanted := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}, StringData: map[string]string{"password": password}}
	_, err := f.Kube.CoreV1().Secrets(namespace).Create(t.Context(), wanted, metav1.CreateOptions{})
	return err
}

// requireSecrecy looks for keys and values where none may be.
func (f *faulty) requireSecrecy(t *testing.T) {
	t.Helper()
	_, state := f.Get(statusPath)
	shown := f.Log() + state
	require.NotContains(t, shown, password)
	require.NotEmpty(t, f.writer.Secrets())
	for _, dek := range f.writer.Secrets() {
		for _, form := range []string{string(dek), base64.StdEncoding.EncodeToString(dek), hex.EncodeToString(dek), fmt.Sprint(dek)} {
			require.NotContains(t, shown, form)
		}
	}
}
