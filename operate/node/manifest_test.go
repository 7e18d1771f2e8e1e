package node

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/operate/bundle"
)

var update = flag.Bool("update", false, "write the golden manifests")

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// forPod is the pod of a plugin with such settings, as a node on a machine would have it.
func forPod(t *testing.T, settings string) podOf {
	t.Helper()
	text := "apiVersion: " + bundle.APIVersion + "\nkind: " + bundle.SettingsKind + "\n" + settings
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n" +
		"  - kms: {apiVersion: v2, name: \"7_secrets\", endpoint: \"unix:///run/kmsplugin/kms-7.sock\"}\n  - identity: {}\n"
	parts := map[bundle.Part][]byte{}
	var asked bundle.Settings
	require.NoError(t, yaml.Unmarshal([]byte(text), &asked))
	for _, part := range asked.Parts() {
		parts[part] = []byte("a credential")
	}
	b, err := bundle.New(bundle.Draft{Revision: 1, EncryptionConfig: []byte(config), Plugins: []bundle.DraftPlugin{{KeyID: 7, Settings: []byte(text), Parts: parts}}})
	require.NoError(t, err)
	p := b.Plugin(7)
	s := Spec{Instance: "mzxw6ytboi3d", KeyID: "7", Folder: "/run/atrest/instances/mzxw6ytboi3d", Socket: "/run/kmsplugin/kms-7.mzxw6ytboi3d.sock",
		Program: p.Settings().Program, Needs: p.Needs()}
	s.Arguments = p.Arguments(bundle.Place{Socket: s.Socket, Files: s.Files()})
	return podOf{Spec: s, UID: uidOf(s), Boot: "8d5a7e3c-0000-4000-8000-000000000000", Memory: 512 << 20, Patience: 30}
}

const image = "program: {image: \"registry.example.com/kms@" + digest + "\"}\n"

func TestManifestsAreWhatTheyWere(t *testing.T) {
	for name, settings := range map[string]string{
		"vault":   "vault: {address: \"https://vault.example.com:8200\", keyPath: transit/keys/kube, tls: {caBundle: ca}, auth: {appRole: {secret: login}}}\n",
		"jwt":     "vault: {address: \"https://vault.example.com:8200\", keyPath: transit/keys/kube, auth: {jwt: {role: kube, file: /run/spire/jwt}}}\n",
		"keyfile": "keyFile: {path: /var/lib/atrest/kek.json}\n",
		"pkcs11":  "pkcs11: {module: /usr/lib/hsm.so, token: atrest, key: kek, secret: hsm}\n",
		"command": "command: {kek: a key, arguments: [\"-listen=$(endpoint)\", \"-token-file=$(secret/other/token)\", \"$$(HOSTNAME)\", \"$$$$(HOSTNAME)\"]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := forPod(t, image+settings).manifest()
			require.NoError(t, err)
			path := "testdata/" + name + ".yaml"
			if *update {
				require.NoError(t, os.WriteFile(path, got, 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
		})
	}
}

// The container is confined as the restricted profile of the pod security standards asks, but for the
// folders of the machine and its network, without which it would wait for an apiserver.
func TestAPluginInAPodMayDoNothingThatItDoesNotNeed(t *testing.T) {
	text, err := forPod(t, image+"keyFile: {path: /var/lib/atrest/kek.json}\n").manifest()
	require.NoError(t, err)
	var pod corev1.Pod
	require.NoError(t, yaml.UnmarshalStrict(text, &pod))
	require.Len(t, pod.Spec.Containers, 1)
	c := pod.Spec.Containers[0]
	may := c.SecurityContext
	require.True(t, *may.ReadOnlyRootFilesystem)
	require.False(t, *may.AllowPrivilegeEscalation)
	require.False(t, *may.Privileged)
	require.Equal(t, []corev1.Capability{"ALL"}, may.Capabilities.Drop)
	require.Empty(t, may.Capabilities.Add)
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.Spec.SecurityContext.SeccompProfile.Type)
	require.False(t, pod.Spec.HostPID || pod.Spec.HostIPC)
	require.False(t, *pod.Spec.AutomountServiceAccountToken)
	require.Nil(t, c.LivenessProbe, "a restart mends no KMS, and tries a PIN once more")
	require.Nil(t, c.StartupProbe)
	require.Empty(t, c.Env)
	writable := 0
	for i, mount := range c.VolumeMounts {
		if !mount.ReadOnly {
			writable++
			require.Equal(t, "/run/kmsplugin/kms-7.mzxw6ytboi3d", pod.Spec.Volumes[i].HostPath.Path, "the folder of its own socket and of no other")
		}
	}
	require.Equal(t, 1, writable)
}

func TestWhatCannotBeAPodIsRefusedWithWhatToDo(t *testing.T) {
	for name, c := range map[string]struct{ settings, want string }{
		"no image":                         {"keyFile: {path: /k/kek.json}\n", "name the image by its digest"},
		"a program on the node":            {"program: {path: /usr/bin/x, sha256: \"" + digest + "\"}\nkeyFile: {path: /k/kek.json}\n", "name the image by its digest"},
		"a TPM":                            {image + "tpm: {path: /k/tpm.json}\n", "uses device /dev/tpmrm0"},
		"a key file beside the sockets":    {image + "keyFile: {path: /run/kmsplugin/kek.json}\n", "two different things in folder /run/kmsplugin"},
		"a key file among the credentials": {image + "keyFile: {path: /run/atrest/instances/mzxw6ytboi3d/kek.json}\n", "two different things"},
	} {
		_, err := forPod(t, c.settings).manifest()
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestALimitOfMemoryIsNeverBelowWhatIsRequested(t *testing.T) {
	for limit, want := range map[int64][]string{
		0:        {"requests:", "memory: 64Mi"},
		32 << 20: {"memory: 32Mi"},
		1 << 30:  {"memory: 1Gi", "memory: 64Mi"},
	} {
		p := forPod(t, image+"keyFile: {path: /k/kek.json}\n")
		p.Memory = limit
		text, err := p.manifest()
		require.NoError(t, err)
		for _, line := range want {
			require.Contains(t, string(text), line)
		}
		require.Equal(t, limit > 0, strings.Contains(string(text), "limits:"))
		require.NotContains(t, strings.Replace(string(text), "memory: 64Mi", "", 1), map[bool]string{true: "64Mi", false: "no such text"}[limit < 64<<20])
	}
}

func TestAnInstanceThatRunsAsAUserIsNeverRoot(t *testing.T) {
	p := forPod(t, image+"keyFile: {path: /k/kek.json}\n")
	p.User, p.Group = 1001, 1002
	text, err := p.manifest()
	require.NoError(t, err)
	require.Contains(t, string(text), "runAsNonRoot: true\n      runAsUser: 1001\n")
}
