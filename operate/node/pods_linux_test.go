package node

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/bundle"
)

const imageLine = "program: {image: \"registry.example.com/kms@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}\n"

// draftOfPods is a bundle of plugins with an image and a key file each.
func (r *rig) draftOfPods(revision uint64, keyIDs ...int) bundle.Draft {
	d := r.draft(revision, keyIDs...)
	for i, keyID := range keyIDs {
		d.Plugins[i].Settings = r.settings(r.keys(keyID), imageLine)
	}
	return d
}

func TestPluginsThatArePodsComeAreTakenOverAndGo(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	r := newRig(t)
	r.o.Runner = k.runner()
	r.give(r.draftOfPods(1, 1))
	r.follows()
	r.start()
	r.until("the first key is in effect", settled(1, 1))
	first := k.pid("1")
	require.True(t, lives(first))

	r.end()
	require.True(t, lives(first))
	r.start()
	r.until("it is taken over", settled(1, 1))
	require.Equal(t, first, k.pid("1"))

	r.give(r.draftOfPods(2, 2, 1))
	r.until("the second is beside it", settled(2, 2))
	require.Equal(t, first, k.pid("1"))
	second := k.pid("2")
	require.NoError(t, syscall.Kill(second, syscall.SIGKILL))
	r.until("the kubelet has restarted it", func(p *Report) bool {
		now := k.pid("2")
		return settled(2, 2)(p) && now != second && now != 0
	})
	require.Zero(t, r.node.Report().Plugins[1].Restarts, "the node had nothing to do")

	r.give(r.draftOfPods(3, 2))
	r.until("the first key is gone", settled(3, 1))
	require.Zero(t, k.pid("1"))
	require.False(t, lives(first))
	for _, left := range []string{k.manifests + "/kms-1-*", r.folder + "/kms/kms-1.*"} {
		found, err := filepath.Glob(left)
		require.NoError(t, err)
		require.Empty(t, found)
	}
	r.end()
	r.o.Drain = true
	r.start()
	r.until("it is taken over", settled(3, 1))
	r.end()
	require.Zero(t, k.pid("2"), "told to drain, it ends them")
	left, err := os.ReadDir(k.manifests)
	require.NoError(t, err)
	require.Empty(t, left)
}

// The memory of the machine is empty after a boot, and the manifests are on its disk.
func TestPodsOfAFormerBootMakeWayForNewOnes(t *testing.T) {
	t.Parallel()
	k := newKubelet(t)
	r := newRig(t)
	r.o.Runner = k.runner()
	r.give(r.draftOfPods(1, 1))
	r.follows()
	r.start()
	r.until("it is in effect", settled(1, 1))
	r.end()
	former, err := filepath.Glob(k.manifests + "/kms-1-*")
	require.NoError(t, err)
	require.Len(t, former, 1)
	boot, err := bootID()
	require.NoError(t, err)
	text := strings.ReplaceAll(r.read(former[0]), boot, "a former one")

	k.mu.Lock() // all is off
	for name := range k.pods {
		k.end(name, syscall.SIGKILL)
	}
	for _, lost := range []string{r.o.Run, r.folder + "/kms", r.o.ConfigFile} {
		require.NoError(t, os.RemoveAll(lost))
	}
	require.NoError(t, os.WriteFile(former[0], []byte(text), 0o600))
	k.mu.Unlock()

	r.start()
	r.until("it is in effect again", settled(1, 1))
	require.NoFileExists(t, former[0])
}

// podOnRecord is an instance whose manifest nobody runs, and its runner.
func podOnRecord(t *testing.T) (*Pods, *kubelet, Spec, manifested) {
	t.Helper()
	folder := t.TempDir()
	k := &kubelet{t: t, manifests: folder + "/m", root: folder + "/kubelet", proc: folder + "/proc"}
	s := podSpec("abc", folder+"/i/abc", folder+"/s/kms-7.abc.sock")
	for _, made := range []string{k.manifests, k.root + "/pods", k.proc + "/self/ns", s.Folder, folder + "/s"} {
		require.NoError(t, os.MkdirAll(made, 0o700))
	}
	require.NoError(t, os.Symlink(firstPIDs, k.proc+"/self/ns/pid"))
	k.tells(1, "0::/init.scope\n")
	require.NoError(t, k.runner().Start(s))
	p, err := recordOfPod(s)
	require.NoError(t, err)
	require.FileExists(t, p.Manifest)
	return k.runner(), k, s, p
}

func podSpec(instance, folder, socket string) Spec {
	return Spec{Instance: instance, KeyID: "7", Settings: "sha256:1", Folder: folder, Socket: socket,
		Program: bundle.Program{Image: "registry.example.com/kms@sha256:" + strings.Repeat("0", 64)}, Arguments: []string{"serve"}}
}

func TestAPodIsGoneOnlyWhenThatIsProven(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*kubelet, Spec, manifested) error
		runs   bool
		unsure string
	}{
		"nothing is left":         {change: func(_ *kubelet, _ Spec, p manifested) error { return os.Remove(p.Manifest) }},
		"it has its manifest":     {change: func(*kubelet, Spec, manifested) error { return nil }, runs: true},
		"it never had a manifest": {change: func(_ *kubelet, s Spec, p manifested) error { return os.Remove(s.Folder + "/" + manifestedName) }},
		"the kubelet has its folder still": {change: func(k *kubelet, _ Spec, p manifested) error {
			return joinedErrors(os.Remove(p.Manifest), os.Mkdir(k.root+"/pods/"+p.UID, 0o700))
		}, runs: true},
		"a process is left": {change: func(k *kubelet, _ Spec, p manifested) error {
			k.tells(4711, cgroupOf(p.UID))
			return os.Remove(p.Manifest)
		}, runs: true},
		"a process of another pod is left": {change: func(k *kubelet, _ Spec, p manifested) error {
			k.tells(4711, cgroupOf("1"+p.UID))
			return os.Remove(p.Manifest)
		}},
		"another folder is the kubelet's": {change: func(k *kubelet, _ Spec, p manifested) error {
			return joinedErrors(os.Remove(p.Manifest), os.Remove(k.root+"/pods"))
		}, unsure: "name the kubelet's folder"},
		"not all processes are seen": {change: func(k *kubelet, _ Spec, p manifested) error {
			return joinedErrors(os.Remove(p.Manifest), os.Remove(k.proc+"/self/ns/pid"), os.Symlink("pid:[4026532000]", k.proc+"/self/ns/pid"))
		}, unsure: "not all processes of the machine are seen"},
		"those of other users are hidden": {change: func(k *kubelet, _ Spec, p manifested) error {
			return joinedErrors(os.Remove(p.Manifest), os.RemoveAll(k.proc+"/1"))
		}, unsure: "not all processes of the machine are seen"},
		"no processes are seen": {change: func(k *kubelet, _ Spec, p manifested) error {
			return joinedErrors(os.Remove(p.Manifest), os.RemoveAll(k.proc))
		}, unsure: "which processes there are"},
		"it was started as a process": {change: func(_ *kubelet, s Spec, p manifested) error {
			return os.Rename(s.Folder+"/"+manifestedName, s.Folder+"/"+startedName)
		}, unsure: "started in another way"},
		"its record is damaged": {change: func(_ *kubelet, s Spec, p manifested) error {
			return os.WriteFile(s.Folder+"/"+manifestedName, nil, 0o600)
		}, unsure: "record of the pod"},
	} {
		t.Run(name, func(t *testing.T) {
			r, k, s, p := podOnRecord(t)
			require.NoError(t, c.change(k, s, p))
			runs, err := r.Runs(s)
			if c.unsure != "" {
				require.ErrorContains(t, err, c.unsure)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.runs, runs)
		})
	}
}

func joinedErrors(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestAPodIsNotTakenForAProcessThatHasGone(t *testing.T) {
	_, _, s, _ := podOnRecord(t)
	_, err := (&Processes{}).Runs(s)
	require.ErrorContains(t, err, "started in another way")
}

func TestWhoListensIsProvenByTheCgroupOfThatVeryPod(t *testing.T) {
	r, k, s, p := podOnRecord(t)
	listen(t, s.Socket+".here")
	conn, err := net.Dial("unix", s.Socket+".here")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	proves := func() error { return r.Proves(s, conn.(*net.UnixConn)) }
	self := os.Getpid()
	require.ErrorContains(t, proves(), "is not known", "the kernel tells nothing of it")
	for name, cgroups := range map[string]string{
		"systemd makes them":           cgroupOf(p.UID),
		"the kubelet makes them":       "0::/kubepods/burstable/pod" + p.UID + "/0123\n",
		"within another, as kind does": "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable-pod" + p.UID + ".slice/x\n",
		"of version 1":                 "12:cpuset:/\n4:memory:/kubepods/burstable/pod" + p.UID + "/0123\n0::/\n",
	} {
		k.tells(self, cgroups)
		require.NoError(t, proves(), name)
	}
	for name, cgroups := range map[string]string{
		"nothing":                       "",
		"no pod":                        "0::/system.slice/sshd.service\n",
		"another pod":                   cgroupOf(uidOf(Spec{Instance: "abd"})),
		"one whose name ends like it":   cgroupOf("1" + p.UID),
		"one whose name begins like it": cgroupOf(p.UID + "1"),
		"one of that name of a user":    "0::/user.slice/my.pod" + p.UID + ".slice/x\n",
		"a line that is none":           "pod" + p.UID + "\n",
		"a controller of that name":     "1:pod" + p.UID + ":/\n",
	} {
		k.tells(self, cgroups)
		require.ErrorContains(t, proves(), "is in no container of pod kms-7-abc", name)
	}
	k.tells(self, cgroupOf(p.UID))
	require.NoError(t, proves())
	require.NoError(t, os.WriteFile(p.Manifest, []byte("another image"), 0o600))
	require.ErrorContains(t, proves(), "somebody changed manifest")
}

func TestAManifestThatSomebodyChangedIsNotRemoved(t *testing.T) {
	r, _, s, p := podOnRecord(t)
	text, err := os.ReadFile(p.Manifest)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(p.Manifest, append(text, '\n'), 0o600))
	require.ErrorContains(t, r.Stop(s, true), "somebody changed manifest")
	require.FileExists(t, p.Manifest)

	require.NoError(t, os.WriteFile(p.Manifest, text, 0o600))
	require.NoError(t, r.Stop(s, false))
	require.NoFileExists(t, p.Manifest)
	require.NoError(t, r.Stop(s, true), "what has none is ended by the kubelet")
	require.NoError(t, r.Clear(s))
	left, err := os.ReadDir(filepath.Dir(s.Socket))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, r.Clear(s), "nothing is left to remove")
}

func TestAManifestOfSomebodyElseOrOfThisBootStays(t *testing.T) {
	r, k, s, p := podOnRecord(t)
	text, err := os.ReadFile(p.Manifest)
	require.NoError(t, err)
	boot, err := bootID()
	require.NoError(t, err)
	former := strings.NewReplacer(boot, "a former one", s.Folder, s.Folder+"-gone")
	for i, content := range []string{
		"kind: [not yaml",
		strings.Replace(former.Replace(string(text)), managedBy, "somebody", 1),
		strings.ReplaceAll(string(text), s.Folder, s.Folder+"-gone"),                             // of this boot
		strings.ReplaceAll(string(text), boot, "a former one"),                                   // its folder is there
		strings.ReplaceAll(former.Replace(string(text)), filepath.Dir(s.Folder), "/elsewhere/i"), // of another node
		former.Replace(string(text)),                                                             // the one that goes
	} {
		require.NoError(t, os.WriteFile(k.manifests+"/kms-8-"+strconv.Itoa(i)+".yaml", []byte(content), 0o600))
	}
	next := podSpec("next", filepath.Dir(s.Folder)+"/next", filepath.Dir(s.Socket)+"/kms-7.next.sock")
	require.NoError(t, os.Mkdir(next.Folder, 0o700))
	require.NoError(t, r.Start(next))
	left, err := filepath.Glob(k.manifests + "/kms-8-*")
	require.NoError(t, err)
	require.Len(t, left, 5)
	require.NoFileExists(t, k.manifests+"/kms-8-5.yaml")
}

// A folder of sockets in memory has gone after a boot that the folder of the instance outlived.
func TestAPodGetsTheFolderOfItsSocketAgain(t *testing.T) {
	r, _, s, _ := podOnRecord(t)
	require.NoError(t, os.RemoveAll(filepath.Dir(s.Socket)))
	runs, err := r.Runs(s)
	require.NoError(t, err)
	require.True(t, runs)
	require.DirExists(t, socketFolder(s))
	target, err := os.Readlink(s.Socket)
	require.NoError(t, err)
	require.Equal(t, "kms-7.abc/kms-7.abc.sock", target, "relative, as an apiserver has the folder elsewhere")
}
