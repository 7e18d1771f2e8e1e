package clusters

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// rancher is a cluster of k3s or RKE2.
type rancher struct {
	*cluster
	program string
	stored  []byte // the copy of the encryption configuration that is in the datastore
}

func newRancher(t *testing.T, program string) *rancher {
	t.Helper()
	r := &rancher{cluster: newCluster(t, "k3s.md"), program: program}
	if program == "rke2" { // as the page says
		for language, blocks := range r.page.blocks {
			for i := range blocks {
				blocks[i] = strings.ReplaceAll(blocks[i], "k3s/", "rke2/")
			}
			r.page.blocks[language] = blocks
		}
	}
	for _, name := range []string{"server-1", "server-2"} {
		r.install(name, "secrets-encryption: true\n")
	}
	r.ready()
	return r
}

// install starts a server for the first time.
func (r *rancher) install(name, flags string) *kubelet {
	r.t.Helper()
	k := r.node(name, "/var/lib/rancher/rke2/agent/pod-manifests")
	r.flags(k, flags)
	require.NoError(r.t, r.restart(k))
	return k
}

func (r *rancher) data(k *kubelet) string { return "/var/lib/rancher/" + r.program }

func (r *rancher) flags(k *kubelet, flags string) {
	r.t.Helper()
	path := k.on("/etc/rancher/" + r.program + "/config.yaml")
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o700))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(r.t, err)
	defer file.Close()
	_, err = file.WriteString(flags)
	require.NoError(r.t, err)
}

// restart is "systemctl restart" of the server.
func (r *rancher) restart(k *kubelet) error {
	r.t.Helper()
	theirs := r.data(k) + "/server/cred/encryption-config.json"
	if err := r.reconcile(k.on(theirs)); err != nil {
		return err
	}
	var config struct {
		Args   []string `json:"kube-apiserver-arg"`
		Mounts []string `json:"kube-apiserver-extra-mount"`
	}
	content, err := os.ReadFile(k.on("/etc/rancher/" + r.program + "/config.yaml"))
	require.NoError(r.t, err)
	require.NoError(r.t, yaml.Unmarshal(content, &config))
	args := map[string]string{"encryption-provider-config": theirs, "encryption-provider-config-automatic-reload": "true"}
	for _, arg := range config.Args {
		name, value, _ := strings.Cut(arg, "=")
		args[name] = value
	}
	if r.program == "rke2" {
		r.manifest(k, theirs, args, config.Mounts)
		k.sync()
		return nil
	}
	k.flags = nil
	for name, value := range args {
		if strings.HasPrefix(value, "/") {
			value = k.on(value)
		}
		k.flags = append(k.flags, "--"+name+"="+value)
	}
	k.serve(func() []string { return k.flags })
	return nil
}

// reconcile makes the file of the server that of the datastore, or refuses to start.
func (r *rancher) reconcile(path string) error {
	onDisk, err := os.ReadFile(path)
	switch {
	case r.stored == nil:
		key := make([]byte, 32)
		_, _ = rand.Read(key)
		r.stored = fmt.Appendf(nil, `{"kind":"EncryptionConfiguration","apiVersion":"apiserver.config.k8s.io/v1","resources":[{"resources":["secrets"],`+
			`"providers":[{"aescbc":{"keys":[{"name":"aescbckey","secret":%q}]}},{"identity":{}}]}]}`, base64.StdEncoding.EncodeToString(key))
	case err == nil && string(onDisk) != string(r.stored):
		return fmt.Errorf("%s newer than datastore and could cause a cluster outage", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, r.stored, 0o600)
}

// manifest writes that of RKE2: the folder of the server is mounted, and each file of a flag
// by itself, but for RKE2's own configuration.
func (r *rancher) manifest(k *kubelet, theirs string, args map[string]string, mounts []string) {
	r.t.Helper()
	pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver", Namespace: "kube-system"},
		Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "kube-apiserver", Command: []string{"kube-apiserver"}}}}}
	container := &pod.Spec.Containers[0]
	mount := func(from, to string, as corev1.HostPathType) {
		name := fmt.Sprint("mount-", len(pod.Spec.Volumes))
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: to})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: from, Type: &as}}})
	}
	for name, value := range args {
		container.Command = append(container.Command, "--"+name+"="+value)
		if info, err := os.Stat(k.on(value)); strings.HasPrefix(value, "/") && err == nil && !info.IsDir() && value != theirs {
			mount(value, value, corev1.HostPathFile)
		}
	}
	slices.Sort(container.Command[1:])
	for _, text := range mounts {
		parts := strings.Split(text, ":")
		mount(parts[0], parts[1], corev1.HostPathDirectoryOrCreate)
	}
	mount(r.data(k)+"/server", r.data(k)+"/server", corev1.HostPathDirectoryOrCreate)
	manifest, err := yaml.Marshal(pod)
	require.NoError(r.t, err)
	require.NoError(r.t, os.MkdirAll(k.manifests(), 0o700))
	require.NoError(r.t, os.WriteFile(filepath.Join(k.manifests(), "kube-apiserver.yaml"), manifest, 0o600))
}

// own gives a server the file and the flags of the page.
func (r *rancher) own(k *kubelet) {
	r.t.Helper()
	text, code := r.runOn(k, "install -d")
	require.Zero(r.t, code, text)
	r.flags(k, r.page.block(r.t, "yaml", map[string]string{"k3s": "# k3s", "rke2": "# RKE2"}[r.program]))
}

// service starts the plugin of a server as the page has it for k3s: before all else.
func (r *rancher) service(k *kubelet) {
	r.t.Helper()
	r.copyKeys(k)
	unit := r.page.block(r.t, "ini", "[Service]")
	require.Contains(r.t, unit, "Before=k3s.service")
	_, line, _ := strings.Cut(unit, "ExecStart=/usr/local/bin/atrest-kms-plugin keyfile ")
	args := strings.Fields(strings.SplitN(line, "\n", 2)[0])
	require.Equal(r.t, []string{"serve", "--listen", "--key-file"}, []string{args[0], args[1], args[3]})
	require.NoError(r.t, os.MkdirAll(k.on("/run/kmsplugin"), 0o700))
	k.plugins["kms-one.service"] = harness.Run(r.t, harness.KeyFilePlugin, k.on(args[4]), strings.Replace(args[2], "unix://", "unix://"+k.root, 1))
}

func (r *rancher) copyKeys(k *kubelet) {
	r.t.Helper()
	k.copy(r.keys.Path(), "/etc/rancher/"+r.program+"/kms/kek.json")
}

func TestTheRecipeForK3sAndRKE2(t *testing.T) {
	for _, program := range []string{"k3s", "rke2"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			testRancher(t, newRancher(t, program))
		})
	}
}

func testRancher(t *testing.T, r *rancher) {
	r.create()
	require.Contains(t, r.page.block(t, "sh", "systemctl"), "systemctl restart k3s")
	for _, k := range r.nodes {
		r.own(k)
		require.NoError(t, r.restart(k))
		k.server.WaitFor("/readyz")
	}
	text, _ := r.run("atrest status")
	require.NotContains(t, text, "PROBLEMS")
	before := r.pids()
	text, code := r.run("--to secretbox", quickly)
	require.Zero(t, code, text)
	if r.program == "rke2" { // the rest is as with k3s
		require.Equal(t, before, r.pids())
		r.reads()
		return
	}
	text, code = r.run("ETCDCTL_CACERT", "\natrest audit")
	require.NotZero(t, code, "this etcd is elsewhere: %s", text)
	require.Contains(t, text, "/var/lib/rancher/k3s/server/tls/etcd/")
	for _, k := range r.nodes {
		r.service(k)
	}
	text, code = r.run("--to kms:one", quickly)
	require.Zero(t, code, text)
	require.Contains(t, text, "finished: ")
	require.Equal(t, before, r.pids(), "no server was restarted for it")
	r.reads()

	// All off and on: their file was left alone, so they start, and with the file of the page.
	r.off()
	for _, k := range r.nodes {
		r.service(k)
		require.NoError(t, r.restart(k))
	}
	r.ready()
	r.reads()
	r.joins()
	require.Len(t, r.page.unused(), 1)
	require.Contains(t, r.page.unused()[0], "# RKE2")
}

// joins has a server join that was given nothing but what the others give it.
func (r *rancher) joins() {
	r.t.Helper()
	k := r.install("server-3", "")
	text, code := r.runOn(k, "--join", separate)
	require.Equal(r.t, 1, code, text)
	require.Contains(r.t, text, "problem: this node has no ")
	k.server.WaitFor("/livez")
	_, err := k.server.Kube.CoreV1().Secrets("default").Get(r.t.Context(), "one", metav1.GetOptions{})
	require.Error(r.t, err, "it reads nothing")
	k.off()

	k.copy(k.on(r.data(k)+"/server/cred/encryption-config.json"), "/etc/rancher/"+r.program+"/encryption/config.json")
	text, code = r.runOn(k, "--join", separate)
	require.Equal(r.t, 1, code, text)
	require.Contains(r.t, text, "unreadable, stored as kms v2")
	require.Contains(r.t, text, "problem: this node has no provider one: server-1 and server-2 have it")
}
