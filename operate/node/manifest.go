package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// podOf is all that the manifest of an instance is made of.
type podOf struct {
	Spec
	// UID is that of the pod: the kubelet keeps the one that a manifest has.
	UID string
	// Boot is the boot of the machine in which the manifest was made.
	Boot string
	// User and Group are those of the node: the files and the socket's folder are theirs.
	User, Group int64
	// Memory is the limit in bytes, 0 for none, and Patience how many seconds it has to end.
	Memory, Patience int64
}

// What a manifest tells the node that made it.
const (
	managedByLabel   = "app.kubernetes.io/managed-by"
	managedBy        = "atrest-node"
	folderAnnotation = "encryption.kube-atrest.io/folder"
	socketAnnotation = "encryption.kube-atrest.io/socket"
	bootAnnotation   = "encryption.kube-atrest.io/boot"
)

const (
	// nodeCritical is the value of the class system-node-critical. No admission gives it to a static
	// pod, and a node that shuts down ends the highest last.
	nodeCritical int32 = 2000001000
	// What a plugin is given of the machine at least: the memory that one has in use, in bytes, and
	// a hundredth of a processor, in thousandths.
	requestedMemory = 64 << 20
	requestedMilli  = 10
)

// uidOf is the UID of an instance's pod. It is as the kubelet makes them, and without dashes the
// same in the names of all cgroups.
func uidOf(s Spec) string {
	sum := sha256.Sum256([]byte("pod of " + s.Instance))
	return hex.EncodeToString(sum[:16])
}

// podName is the name of an instance's pod, to which the kubelet adds its own.
func podName(s Spec) string { return "kms-" + s.KeyID + "-" + s.Instance }

// socketFolder is the one folder on the machine that an instance makes its socket in. It is not
// shared: who can write to the folder of all sockets can take another one's place.
func socketFolder(s Spec) string { return strings.TrimSuffix(s.Socket, ".sock") }

// manifest is the static pod of an instance, as a file for the kubelet. It is the same for the same input.
func (p podOf) manifest() ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	priority, no := nodeCritical, false
	volumes, mounts, err := p.volumes()
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: podName(p.Spec), Namespace: metav1.NamespaceSystem, UID: types.UID(p.UID),
			Labels:      map[string]string{managedByLabel: managedBy, "app.kubernetes.io/name": "kms-plugin", "encryption.kube-atrest.io/key-id": p.KeyID},
			Annotations: map[string]string{folderAnnotation: p.Folder, socketAnnotation: p.Socket, bootAnnotation: p.Boot},
		},
		Spec: corev1.PodSpec{
			// A pod with a network of its own is not started before the network of the cluster is
			// there, which may wait for an apiserver, and that for this plugin. For the same reason
			// names are looked up as the host does, and no services of the cluster are told of.
			HostNetwork: true, DNSPolicy: corev1.DNSDefault, EnableServiceLinks: &no, AutomountServiceAccountToken: &no,
			PriorityClassName: "system-node-critical", Priority: &priority,
			RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &p.Patience,
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers:      []corev1.Container{p.container(mounts)},
			Volumes:         volumes,
		},
	})
}

func (p podOf) check() error {
	switch {
	case p.Program.Image == "":
		return fmt.Errorf("keyID %s has no program.image, and is to run as a pod: name the image by its digest, as HOST/NAME@sha256:DIGEST", p.KeyID)
	case p.Needs.Device != "":
		return fmt.Errorf("keyID %s uses device %s, for which a container has to be privileged: run it as a process", p.KeyID, p.Needs.Device)
	}
	return nil
}

// container has no probes. A probe that asks for the health of the KMS would have the kubelet restart a
// plugin for what no restart mends, and where each start tries a PIN it would lock the token;
// the node itself asks on the socket, which no probe of the kubelet can. What ends is restarted.
func (p podOf) container(mounts []corev1.VolumeMount) corev1.Container {
	yes, no := true, false
	root := p.User == 0
	notRoot := !root
	c := corev1.Container{
		Name: "plugin", Image: p.Program.Image, ImagePullPolicy: corev1.PullIfNotPresent, VolumeMounts: mounts,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(requestedMilli, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(requestedMemory, resource.BinarySI),
		}},
		SecurityContext: &corev1.SecurityContext{
			Privileged: &no, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			RunAsUser: &p.User, RunAsGroup: &p.Group, RunAsNonRoot: &notRoot,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	for _, argument := range p.Arguments { // in which the kubelet puts variables in the place of $(NAME)
		c.Args = append(c.Args, strings.ReplaceAll(argument, "$", "$$"))
	}
	if p.Memory > 0 {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(p.Memory, resource.BinarySI)}
		c.Resources.Requests[corev1.ResourceMemory] = *resource.NewQuantity(min(requestedMemory, p.Memory), resource.BinarySI)
	}
	return c
}

// volumes are the folders of the machine that it has, and no others. All have to be there: what
// has gone with the memory of the machine is not made anew, empty, by the kubelet.
func (p podOf) volumes() (volumes []corev1.Volume, mounts []corev1.VolumeMount, err error) {
	directory := corev1.HostPathDirectory
	add := func(name, host, path string, readOnly bool) {
		if slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return m.MountPath == path }) {
			err = errors.Join(err, fmt.Errorf("keyID %s has two different things in folder %s: put the file that it reads into another one", p.KeyID, path))
			return
		}
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host, Type: &directory}}})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly})
	}
	add("socket", socketFolder(p.Spec), filepath.Dir(p.Socket), false)
	add("files", p.Folder, p.Folder, true) // the whole of it: a link in it is what is replaced
	var folders []string
	for _, file := range p.Needs.Files {
		if folder := filepath.Dir(file); !slices.Contains(folders, folder) {
			folders = append(folders, folder)
			add(fmt.Sprintf("host-%d", len(folders)), folder, folder, true)
		}
	}
	return volumes, mounts, err
}
