package clusters

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// kubelet stands in for that of a control plane node: it runs the static pods of
// a folder, and restarts one whose manifest has changed. The node's root is
// a folder, and a path of a manifest is one below it if it is mounted.
type kubelet struct {
	t    *testing.T
	name string
	root string
	pods string // the folder of the static pods
	etcd interface{ Endpoint() string }
	// running are the manifests, by file, as they were started.
	running map[string]string
	server  *harness.Server
	prefix  string   // of its kube-apiserver in etcd, if it is not the usual one
	flags   []string // of its kube-apiserver, where that is no static pod
	plugins map[string]*harness.Process
}

func newKubelet(t *testing.T, name, root, pods string, etcd interface{ Endpoint() string }) *kubelet {
	t.Helper()
	k := &kubelet{t: t, name: name, root: root, pods: pods, etcd: etcd, running: map[string]string{}, plugins: map[string]*harness.Process{}}
	require.NoError(t, os.MkdirAll(k.manifests(), 0o700))
	return k
}

// on is where a path of the node is on this machine.
func (k *kubelet) on(path string) string { return filepath.Join(k.root, path) }

func (k *kubelet) manifests() string { return k.on(k.pods) }

// copy puts a file on the node.
func (k *kubelet) copy(from, to string) {
	k.t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(k.t, err)
	require.NoError(k.t, os.MkdirAll(filepath.Dir(k.on(to)), 0o700))
	require.NoError(k.t, os.WriteFile(k.on(to), content, 0o600))
}

// sync makes what runs that of the manifests. Those named last are started last.
func (k *kubelet) sync(last ...string) {
	k.t.Helper()
	files, err := os.ReadDir(k.manifests())
	require.NoError(k.t, err)
	slices.SortStableFunc(files, func(a, b os.DirEntry) int {
		return slices.Index(last, a.Name()) - slices.Index(last, b.Name())
	})
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(k.manifests(), file.Name()))
		require.NoError(k.t, err)
		if k.running[file.Name()] == string(content) {
			continue
		}
		var pod corev1.Pod
		require.NoError(k.t, yaml.UnmarshalStrict(content, &pod), file.Name())
		k.start(file.Name(), pod)
		k.running[file.Name()] = string(content)
	}
}

// off ends all that runs, as a power cut does.
func (k *kubelet) off() {
	k.t.Helper()
	k.server.Kill()
	for _, plugin := range k.plugins {
		plugin.Kill()
	}
	clear(k.running)
}

func (k *kubelet) start(file string, pod corev1.Pod) {
	k.t.Helper()
	require.True(k.t, pod.Spec.HostNetwork, "%s: a static pod of a control plane has to have the host's network", file)
	args, err := k.args(pod)
	require.NoError(k.t, err)
	switch {
	case file != "kube-apiserver.yaml":
		k.stop(k.plugins[file])
		require.Equal(k.t, []string{"atrest-kms-plugin", "keyfile", "serve", "--listen", "--key-file"}, []string{args[0], args[1], args[2], args[3], args[5]})
		k.plugins[file] = harness.Run(k.t, harness.KeyFilePlugin, args[6], args[4])
	default:
		k.serve(k.serverArgs)
	}
}

// soonLive is for how long a kube-apiserver waits for its caches before it is live. One that
// cannot read what is stored goes on without them then: after a minute if nothing is said.
const soonLive = "--storage-initialization-timeout=5s"

// serve starts the kube-apiserver, or starts it again, with flags that are found then.
func (k *kubelet) serve(flags func() []string) {
	k.t.Helper()
	if k.server == nil {
		spec := harness.Spec{Program: harness.HurriedServer, Host: k.name, Etcd: k.etcd, Now: flags, Flags: []string{soonLive}}
		if k.prefix != "" {
			spec.Flags = append(spec.Flags, "--etcd-prefix="+k.prefix)
		}
		k.server = harness.Launch(k.t, spec)
		k.t.Cleanup(k.server.Kill) // nobody needs its orderly end
		return
	}
	k.stop(k.server.Process)
	k.server.Restart()
}

func (k *kubelet) stop(p *harness.Process) {
	if p != nil {
		p.Stop()
	}
}

// serverArgs are those of the manifest as it is that are about encryption: the others are
// the harness' own.
func (k *kubelet) serverArgs() (flags []string) {
	content, err := os.ReadFile(filepath.Join(k.manifests(), "kube-apiserver.yaml"))
	require.NoError(k.t, err)
	var pod corev1.Pod
	require.NoError(k.t, yaml.UnmarshalStrict(content, &pod))
	args, err := k.args(pod)
	require.NoError(k.t, err)
	for _, arg := range args {
		if strings.HasPrefix(arg, "--encryption-") {
			flags = append(flags, arg)
		}
	}
	return flags
}

// args are those of a pod's container, with the paths in them that are mounted where they
// are on this machine. There is an error if a folder that has to be there is not.
func (k *kubelet) args(pod corev1.Pod) ([]string, error) {
	container := pod.Spec.Containers[0]
	var replace []string
	for _, mount := range container.VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if i < 0 || pod.Spec.Volumes[i].HostPath == nil {
			return nil, fmt.Errorf("pod %s: no volume %s with a hostPath", pod.Name, mount.Name)
		}
		from := pod.Spec.Volumes[i].HostPath
		switch info, err := os.Stat(k.on(from.Path)); {
		case *from.Type == corev1.HostPathDirectoryOrCreate:
			if err := os.MkdirAll(k.on(from.Path), 0o700); err != nil {
				return nil, err
			}
		case *from.Type == corev1.HostPathFile:
			return nil, fmt.Errorf("pod %s: %s is mounted by itself: no change of it is seen", pod.Name, from.Path)
		case err != nil || !info.IsDir():
			return nil, fmt.Errorf("pod %s: hostPath type check failed: %s is not a directory", pod.Name, from.Path)
		}
		replace = append(replace, mount.MountPath, k.on(from.Path))
	}
	var args []string
	for _, arg := range container.Command {
		args = append(args, strings.NewReplacer(replace...).Replace(arg))
	}
	return args, nil
}
