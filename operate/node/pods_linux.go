package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/wholefile"
)

// Pods is the [Runner] of static pods: a manifest for each instance, in the folder of which the
// kubelet runs all. The node is no parent of such a plugin; that it is the one which
// listens, the kernel tells by the cgroup of the pod, whose UID the manifest gives.
//
// The kubelet ends what has no manifest any more, and only that: while it is down what runs
// runs on, and is not known to be gone.
type Pods struct {
	// Manifests is the folder that the kubelet has as staticPodPath.
	Manifests string
	// Kubelet is the kubelet's own folder, /var/lib/kubelet, and Proc the kernel's, /proc.
	Kubelet, Proc string
	// Memory is the most that a plugin may have, in bytes; 0 is no limit.
	Memory uint64
	// Patience is how long the kubelet lets one take to end before it kills it, in full seconds.
	Patience time.Duration
}

var _ Runner = (*Pods)(nil)

// manifested is the record of a pod, in the folder of its instance.
type manifested struct {
	UID string `json:"uid"`
	// Manifest is the path of the manifest, and Hash that of its content.
	Manifest string `json:"manifest"`
	Hash     string `json:"hash"`
}

const manifestedName = "pod.json"

// Start puts the manifest in place by one rename, with its UID on record before.
func (r *Pods) Start(s Spec) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	pod := podOf{Spec: s, UID: uidOf(s), Boot: boot, User: int64(os.Geteuid()), Group: int64(os.Getegid()),
		Memory: int64(r.Memory), Patience: max(1, int64(r.Patience.Round(time.Second)/time.Second))}
	text, err := pod.manifest()
	if err != nil {
		return err
	}
	if err := r.removeFormer(s, boot); err != nil {
		return fmt.Errorf("manifests of a former boot: %w", err)
	}
	if err := placeSocket(s); err != nil {
		return err
	}
	p := manifested{UID: pod.UID, Manifest: filepath.Join(r.Manifests, podName(s)+".yaml"), Hash: hashed.Name(text)}
	onRecord, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := wholefile.Write(filepath.Join(s.Folder, manifestedName), onRecord); err != nil {
		return err
	}
	if err := wholefile.Write(p.Manifest, text); err != nil {
		return fmt.Errorf("manifest for the kubelet: %w", err)
	}
	return nil
}

// placeSocket makes the folder of a socket, and leads to it from where the socket is looked for.
func placeSocket(s Spec) error {
	folder := socketFolder(s)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("folder of the socket: %w", err)
	}
	target := filepath.Join(filepath.Base(folder), filepath.Base(s.Socket))
	if is, err := os.Readlink(s.Socket); err == nil && is == target {
		return nil
	}
	return relink(target, s.Socket)
}

// recordOfPod is the pod of an instance. The error wraps [fs.ErrNotExist] if it never had one.
func recordOfPod(s Spec) (manifested, error) {
	text, err := os.ReadFile(filepath.Join(s.Folder, manifestedName))
	if errors.Is(err, fs.ErrNotExist) {
		return manifested{}, cmp.Or(startedOtherwise(s, startedName), err)
	}
	if err != nil {
		return manifested{}, err
	}
	var p manifested
	if err := json.Unmarshal(text, &p); err != nil {
		return manifested{}, fmt.Errorf("record of the pod of %s: %w", s.Instance, err)
	}
	return p, nil
}

// startedOtherwise is an error if an instance has the record of another runner, or if that is not known.
func startedOtherwise(s Spec, record string) error {
	_, err := os.Lstat(filepath.Join(s.Folder, record))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%s has a %s: it was started in another way than this node starts plugins; end it with the node as it was, by --drain", s.Folder, record)
}

// Runs reports whether the pod has a manifest or, after that, anything left of it: the folder that the
// kubelet has for each pod until it has ended, or a process.
func (r *Pods) Runs(s Spec) (bool, error) {
	p, err := recordOfPod(s)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = os.Lstat(p.Manifest)
	if err == nil {
		return true, placeSocket(s) // which may have gone with the memory of the machine
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return r.remains(p.UID)
}

func (r *Pods) remains(uid string) (bool, error) {
	pods := filepath.Join(r.Kubelet, "pods")
	if _, err := os.Stat(pods); err != nil {
		return false, fmt.Errorf("whether the kubelet has ended the pod is not known: %w: name the kubelet's folder", err)
	}
	_, err := os.Lstat(filepath.Join(pods, uid))
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return kernel(r.Proc).anyInPod(uid)
}

// Proves is nil if the process that listens is in a container of the instance's pod, and the manifest is as
// it was written: another one may run anything under the same UID.
func (r *Pods) Proves(s Spec, conn *net.UnixConn) error {
	p, err := recordOfPod(s)
	if err != nil {
		return err
	}
	if err := p.unchanged(); err != nil {
		return err
	}
	peer, err := listener(conn)
	if err != nil {
		return err
	}
	if peer.Pid <= 0 {
		return errors.New("who listens is not seen from here: run the node on the host, not in a container")
	}
	in, err := kernel(r.Proc).inPod(int(peer.Pid), p.UID)
	switch {
	case err != nil:
		return fmt.Errorf("which pod process %d is of, which listens, is not known: %w", peer.Pid, err)
	case !in:
		return fmt.Errorf("process %d listens, and is in no container of pod %s", peer.Pid, podName(s))
	}
	return nil
}

// unchanged is an error unless the manifest is as it was written.
func (p manifested) unchanged() error {
	text, err := os.ReadFile(p.Manifest)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if hashed.Name(text) != p.Hash {
		return fmt.Errorf("somebody changed manifest %s, so it is not known what runs: remove it", p.Manifest)
	}
	return nil
}

// Stop removes the manifest. The kubelet kills what does not end within Patience, so hard is no more than that.
func (r *Pods) Stop(s Spec, _ bool) error {
	p, err := recordOfPod(s)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = p.unchanged()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return removeManifest(p.Manifest)
}

func removeManifest(path string) error {
	if err := removed(path); err != nil {
		return err
	}
	return wholefile.Settle(filepath.Dir(path))
}

// Clear removes the folder of the socket.
func (r *Pods) Clear(s Spec) error { return clearSocket(s) }

func clearSocket(s Spec) error {
	folder := socketFolder(s)
	socket := filepath.Join(folder, filepath.Base(s.Socket))
	return errors.Join(removed(socket), removed(socket+".lock"), removed(folder), removed(s.Socket))
}
