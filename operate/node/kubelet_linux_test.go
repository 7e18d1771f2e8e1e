package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// kubelet stands in for that of a control plane node: it runs the static pods of a folder, a process for
// each, restarts what ends, and ends what has no manifest any more. What the kernel would tell of the
// cgroups of containers is in a folder too.
type kubelet struct {
	t                     *testing.T
	manifests, root, proc string
	program               string

	mu   sync.Mutex
	pods map[string]*runningPod // by the manifest's name
}

type runningPod struct {
	uid     string
	command *exec.Cmd
	ended   chan struct{}
}

// newKubelet has one run until the test has ended, and what was registered after it has.
func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	folder, err := os.MkdirTemp("", "k")
	require.NoError(t, err)
	k := &kubelet{t: t, manifests: folder + "/manifests", root: folder + "/kubelet", proc: folder + "/proc", program: realPlugin(t), pods: map[string]*runningPod{}}
	for _, made := range []string{k.manifests, k.root + "/pods", k.proc + "/self/ns"} {
		require.NoError(t, os.MkdirAll(made, 0o700))
	}
	require.NoError(t, os.Symlink(firstPIDs, k.proc+"/self/ns/pid"))
	k.tells(1, "0::/init.scope\n")
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			k.sync()
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-over
		for name := range k.pods {
			k.end(name, syscall.SIGKILL)
		}
		require.NoError(t, os.RemoveAll(folder))
	})
	return k
}

func (k *kubelet) runner() *Pods {
	return &Pods{Manifests: k.manifests, Kubelet: k.root, Proc: k.proc, Memory: 1 << 30, Patience: 10 * time.Second}
}

// tells has the kernel tell of the cgroups of a process.
func (k *kubelet) tells(pid int, cgroups string) {
	folder := filepath.Join(k.proc, strconv.Itoa(pid))
	assert.NoError(k.t, os.MkdirAll(folder, 0o700))
	assert.NoError(k.t, os.WriteFile(folder+"/cgroup", []byte(cgroups), 0o600))
}

func cgroupOf(uid string) string {
	return "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid + ".slice/cri-containerd-0123.scope\n"
}

func (k *kubelet) sync() {
	k.mu.Lock()
	defer k.mu.Unlock()
	files, err := filepath.Glob(k.manifests + "/[^.]*")
	assert.NoError(k.t, err)
	there := map[string]bool{}
	for _, file := range files {
		name := filepath.Base(file)
		there[name] = true
		if text, err := os.ReadFile(file); err == nil && k.pods[name].over() {
			k.start(name, text)
		}
	}
	for name := range k.pods {
		if !there[name] {
			k.end(name, syscall.SIGTERM)
		}
	}
}

func (p *runningPod) over() bool {
	if p == nil {
		return true
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (k *kubelet) start(name string, text []byte) {
	var pod corev1.Pod
	if !assert.NoError(k.t, yaml.UnmarshalStrict(text, &pod), name) {
		return
	}
	arguments, err := onHost(pod)
	if err != nil { // it tries again
		return
	}
	assert.NoError(k.t, os.MkdirAll(filepath.Join(k.root, "pods", string(pod.UID)), 0o700))
	p := &runningPod{uid: string(pod.UID), command: exec.Command(k.program, arguments...), ended: make(chan struct{})}
	if !assert.NoError(k.t, p.command.Start()) {
		return
	}
	if former := k.pods[name]; former != nil {
		assert.NoError(k.t, os.RemoveAll(filepath.Join(k.proc, strconv.Itoa(former.command.Process.Pid))))
	}
	k.tells(p.command.Process.Pid, cgroupOf(p.uid))
	go func() { // which ends with the process
		_ = p.command.Wait()
		close(p.ended)
	}()
	k.pods[name] = p
}

// onHost are the arguments of a pod's container, with the paths in them that are mounted where they are on
// the machine. There is an error if a folder that has to be there is not.
func onHost(pod corev1.Pod) ([]string, error) {
	var replace []string
	container := pod.Spec.Containers[0]
	for i, volume := range pod.Spec.Volumes {
		if info, err := os.Stat(volume.HostPath.Path); *volume.HostPath.Type != corev1.HostPathDirectory || err != nil || !info.IsDir() {
			return nil, fmt.Errorf("hostPath type check failed: %s is not a directory", volume.HostPath.Path)
		}
		if at := container.VolumeMounts[i].MountPath; at != volume.HostPath.Path {
			replace = append(replace, at+"/", volume.HostPath.Path+"/")
		}
	}
	var all []string
	for _, argument := range container.Args {
		all = append(all, strings.ReplaceAll(strings.NewReplacer(replace...).Replace(argument), "$$", "$"))
	}
	return all, nil
}

func (k *kubelet) end(name string, signal syscall.Signal) {
	p := k.pods[name]
	if !p.over() {
		assert.NoError(k.t, p.command.Process.Signal(signal))
		<-p.ended
	}
	assert.NoError(k.t, os.RemoveAll(filepath.Join(k.proc, strconv.Itoa(p.command.Process.Pid))))
	assert.NoError(k.t, os.RemoveAll(filepath.Join(k.root, "pods", p.uid)))
	delete(k.pods, name)
}

// pid is the process of the one pod of a keyID, 0 if there is none or more than one.
func (k *kubelet) pid(keyID string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	pid := 0
	for name, p := range k.pods {
		if strings.HasPrefix(name, "kms-"+keyID+"-") && !p.over() {
			if pid != 0 {
				return 0
			}
			pid = p.command.Process.Pid
		}
	}
	return pid
}
