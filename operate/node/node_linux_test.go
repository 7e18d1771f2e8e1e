package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
	"github.com/kube-atrest/atrest/operate/bundle"
)

func hashOf(content []byte) string { return hashed.Name(content) }

func TestAKeyComesBesideAnotherAndTheOtherGoesOnceTheApiserverDoesWithout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	first := r.pid("1")

	r.give(r.draft(2, 2, 1))
	r.until("the second is beside it", settled(2, 2))
	require.Equal(t, first, r.pid("1"), "what did not change is not started anew")

	r.api.set(func(p *played) { p.follow = "" }) // it goes on with what it has
	r.give(r.draft(3, 2))
	report := r.until("the file is in place", func(r *Report) bool { return r.InEffect != nil && r.InEffect.Revision == 3 && len(r.Waits) == 1 })
	require.Contains(t, report.Waits[0], "keyID 1 stays")
	r.api.set(func(p *played) { p.err = errAway })
	r.until("it is silent", func(r *Report) bool { return strings.Contains(strings.Join(r.Waits, ""), "does not answer") })
	require.True(t, lives(first), "silence is no proof that it is not needed")

	r.api.set(func(p *played) { p.err = nil })
	r.follows()
	r.until("the first key is gone", settled(3, 1))
	require.False(t, lives(first))
	for _, left := range []string{"kms/kms-1.sock", "kms/kms-1.*"} {
		found, err := filepath.Glob(r.folder + "/" + left)
		require.NoError(t, err)
		require.Empty(t, found)
	}
}

func TestABundleWhosePluginDoesNotComeLeavesTheFormerInEffect(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	before := r.pid("1")
	file, err := os.ReadFile(r.o.ConfigFile)
	require.NoError(t, err)

	wrong := r.draft(2, 2, 1)
	wrong.Plugins[0].Settings = r.settings(r.folder+"/nothing.json", "")
	r.give(wrong)
	report := r.until("the reason is told", func(r *Report) bool {
		return strings.Contains(strings.Join(r.Problems, ""), "plugin of keyID 2 ended by itself")
	})
	require.Contains(t, strings.Join(report.Waits, "\n"), "revision 2 waits for keyID 2")
	require.Contains(t, strings.Join(report.Problems, "\n"), "nothing.json")
	require.Equal(t, uint64(1), report.InEffect.Revision)
	now, err := os.ReadFile(r.o.ConfigFile)
	require.NoError(t, err)
	require.Equal(t, file, now)

	r.give(r.draft(3, 2, 1)) // the repair
	r.until("the repair is in effect", settled(3, 2))
	require.Equal(t, before, r.pid("1"))
}

func TestAProgramWithAnotherDigestIsNotRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.draft(1, 1)
	d.Plugins[0].Settings = r.settings(r.keys(1), "program: {path: "+realPlugin(t)+", sha256: \"sha256:"+strings.Repeat("0", 64)+"\"}\n")
	r.give(d)
	r.start()
	report := r.until("it is told", func(r *Report) bool { return strings.Contains(strings.Join(r.Problems, ""), "it has the digest") })
	require.Nil(t, report.InEffect)
	require.NoFileExists(t, r.o.ConfigFile)
}

func TestAPluginWithAnotherKeyThanExpectedLeavesTheFormerInEffect(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.o.Expected = func(b *bundle.Bundle) (map[string]string, error) {
		return map[string]string{"2": "sha256:" + strings.Repeat("0", 64)}, nil
	}
	r.runs()
	r.give(r.draft(2, 2, 1))
	report := r.until("the reason is told", func(r *Report) bool { return strings.Contains(strings.Join(r.Waits, ""), "was expected") })
	require.Equal(t, uint64(1), report.InEffect.Revision)
}

// The kernel ends it at a moment that nobody chose; then the machine goes off with all memory.
func TestAPluginThatIsKilledComesBackAndAMachineComesUpFromItsDiskAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	first := r.pid("1")
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	report := r.until("another one has its place", func(p *Report) bool { return settled(1, 1)(p) && r.pid("1") != first && r.pid("1") != 0 })
	require.Equal(t, 1, report.Plugins[0].Restarts)

	r.end() // all is off
	r.killAll()
	for _, lost := range []string{r.o.Run, r.o.Bundles, r.folder + "/kms", r.o.ConfigFile} {
		require.NoError(t, os.RemoveAll(lost))
	}
	r.api.set(func(p *played) { p.err, p.follow = errAway, "" })
	r.start()
	report = r.until("it is in effect again", settled(1, 1))
	require.Nil(t, report.Wanted, "there is no folder")
	require.FileExists(t, r.o.ConfigFile)
}

func TestANodeThatEndsLeavesThePluginsAndTheNextTakesThemOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	pid := r.pid("1")
	r.end()
	require.True(t, lives(pid))
	r.start()
	r.until("it is taken over", settled(1, 1))
	require.Equal(t, pid, r.pid("1"))
	require.Zero(t, r.node.Report().Plugins[0].Restarts)

	r.end()
	r.o.Drain = true
	r.start()
	r.until("it is taken over", settled(1, 1))
	r.end()
	require.False(t, lives(pid), "told to drain, it ends them")
	left, err := os.ReadDir(r.o.Run + "/instances")
	require.NoError(t, err)
	require.Empty(t, left, "and leaves no files")
}

// A program that is changed takes the place of the former one under the same name.
func TestAnotherProgramTakesThePlaceOfTheFormerWithoutAGap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	first := r.pid("1")
	d := r.draft(2, 1)
	d.Plugins[0].Settings = r.settings(r.keys(1)+"", "")
	d.Plugins[0].Settings = []byte(strings.Replace(string(d.Plugins[0].Settings), "path:", "poll: 7s, path:", 1))
	r.give(d)
	r.until("the other one has its place", func(p *Report) bool { return settled(2, 1)(p) && r.pid("1") != first })
	require.False(t, lives(first))

	other := r.draft(3, 1) // the same keyID, and another key behind it
	other.Plugins[0].Settings = r.settings(r.keys(9), "")
	r.give(other)
	r.until("the reason is told", func(r *Report) bool {
		return strings.Contains(strings.Join(r.Waits, ""), "it has another KEK, and needs another keyID")
	})
	require.Equal(t, uint64(2), r.node.Report().InEffect.Revision)
}

func TestAStrangerUnderTheNameIsNotTakenForThePlugin(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.NoError(t, os.Mkdir(r.folder+"/kms", 0o700))
	stranger := listen(t, r.folder+"/kms/kms-1.sock")
	r.give(r.draft(1, 1))
	r.start()
	report := r.until("it is told", waits("revision 1 waits for keyID 1: somebody listens at"))
	require.Nil(t, report.Accepted)
	require.NoFileExists(t, r.o.ConfigFile, "the file would have the apiserver ask the stranger")
	require.NoError(t, stranger.Close())
	require.NoError(t, os.RemoveAll(r.folder+"/kms/kms-1.sock"))
	r.until("it has its name", func(p *Report) bool { return p.InEffect != nil })
}

// A number that another process has by now is not ended for the one that had it.
func TestAProcessThatWasNotStartedIsNotEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runner := r.o.Runner.(*Processes)
	s := Spec{Instance: "i", KeyID: "1", Folder: r.folder + "/i", Socket: r.folder + "/i.sock"}
	require.NoError(t, os.Mkdir(s.Folder, 0o700))
	self, err := lifeOf(os.Getpid())
	require.NoError(t, err)
	for name, change := range map[string]func(*started){
		"another birth": func(p *started) { p.Life.Start++ },
		"another boot":  func(p *started) { p.Life.Boot = "another" },
	} {
		p := started{Life: self, Path: "/plugin"}
		change(&p)
		writeRecord(t, s, p)
		require.NoError(t, runner.Stop(s, true), name) // this test would not outlive it
		runs, err := runner.Runs(s)
		require.NoError(t, err)
		require.False(t, runs, name)
	}
}

func TestNoCredentialIsInAnArgumentTheEnvironmentOrTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	secret := r.read(r.keys(1))
	part := bundle.Part{Source: bundle.Secret, Name: "login", Key: "token"}
	d := r.draft(1, 1)
	d.Plugins[0] = r.command(secret)
	r.give(d)
	r.start()
	r.until("it runs", func(p *Report) bool { return len(p.Plugins) == 1 && p.Plugins[0].Serving })
	found, _, err := r.node.disk.all()
	require.NoError(t, err)
	process, err := recordOf(found[0].Spec)
	require.NoError(t, err)
	for _, what := range []string{"cmdline", "environ"} {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(process.Life.PID), what))
		require.NoError(t, err)
		require.NotContains(t, string(text), secret)
	}
	file := filepath.Join(found[0].Spec.Files(), part.FileName(1))
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, secret, string(content))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NotContains(t, r.logged(), secret)
	limits, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(process.Life.PID), "limits"))
	require.NoError(t, err)
	var core unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_CORE, &core))
	require.Regexp(t, fmt.Sprintf("Max core file size +%[1]d +%[1]d ", min(1, core.Max)), string(limits))
	require.Regexp(t, `Max open files +256 `, string(limits))
	require.Regexp(t, `Max file size +67108864 `, string(limits))
	require.Regexp(t, `Max data size +1073741824 `, string(limits))
}

// command is a plugin of somebody else's with a credential: here it is ours, and its key file.
func (r *rig) command(secret string) bundle.DraftPlugin {
	program := realPlugin(r.t)
	content, err := os.ReadFile(program)
	require.NoError(r.t, err)
	settings := "apiVersion: " + bundle.APIVersion + "\nkind: " + bundle.SettingsKind + "\nprogram: {path: " + program + ", sha256: \"" + hashOf(content) + "\"}\n" +
		"command:\n  kek: a key file\n  arguments: [keyfile, serve, --listen, $(endpoint), --key-file, $(secret/login/token)]\n"
	part := bundle.Part{Source: bundle.Secret, Name: "login", Key: "token"}
	return bundle.DraftPlugin{KeyID: 1, Settings: []byte(settings), Parts: map[bundle.Part][]byte{part: []byte(secret)}}
}

func TestNewCredentialsComeWithoutARestartAndTheFormerAreOverwritten(t *testing.T) {
	t.Parallel()
	s := vaulttest.Start(t)
	s.CreateKey("k", "")
	policy, err := vault.Policy(vault.Config{Address: s.Address, Mount: "transit", Key: "k"})
	require.NoError(t, err)
	s.Policy("plugin", policy)
	r := newRig(t)
	r.giveVault(s, 1, s.Address, s.Token(time.Hour, "plugin"), "")
	r.follows()
	r.start()
	r.until("it is in effect", settled(1, 1))
	pid := r.pid("1")
	found, _, err := r.node.disk.all()
	require.NoError(t, err)
	part := bundle.Part{Source: bundle.Secret, Name: "login", Key: "token"}
	file := filepath.Join(found[0].Spec.Files(), part.FileName(1))
	spy := r.folder + "/spy"
	require.NoError(t, os.Link(file, spy))

	newer := s.Token(time.Hour, "plugin")
	r.giveVault(s, 2, s.Address, newer, "")
	require.Eventually(t, func() bool { content, err := os.ReadFile(file); return err == nil && string(content) == newer }, time.Minute, 10*time.Millisecond)
	r.until("it is in effect", settled(2, 1))
	require.Equal(t, pid, r.pid("1"))
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(spy)
		return err == nil && strings.Trim(string(content), "\x00") == ""
	}, time.Minute, 50*time.Millisecond)
}

// It may read them but once, and they may name another key: it has to open what the former one wrapped.
func TestNewCredentialsOfSomebodyElsesPluginAreTriedBesideIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	version := r.versions(r.keys(1))[0]
	give := func(revision uint64) {
		d := r.draft(revision, 1)
		d.Plugins[0] = r.command(r.read(r.keys(1)))
		d.Plugins[0].Settings = []byte(strings.Replace(string(d.Plugins[0].Settings), "serve,", "serve, --pin="+version+",", 1))
		r.give(d)
	}
	give(1)
	r.follows()
	r.start()
	r.until("it is in effect", settled(1, 1))
	pid := r.pid("1")
	found, _, err := r.node.disk.all()
	require.NoError(t, err)
	said, err := exec.Command(realPlugin(t), "keyfile", "rotate", "--key-file", r.keys(1)).CombinedOutput()
	require.NoError(t, err, string(said))
	give(2) // with a KEK more, which is not wrapped with yet
	r.until("it is in effect", settled(2, 1))
	require.NotEqual(t, pid, r.pid("1"))
	require.False(t, lives(pid))
	require.NoDirExists(t, found[0].Spec.Folder)
}

func (r *rig) read(path string) string {
	content, err := os.ReadFile(path)
	require.NoError(r.t, err)
	return string(content)
}

// A record that cannot be read may be of a plugin that runs: a second one beside it is no remedy.
func TestNothingIsStartedWhileItIsNotKnownWhatRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	damaged := r.o.Run + "/instances/damaged"
	require.NoError(t, os.MkdirAll(damaged, 0o700))
	require.NoError(t, os.WriteFile(damaged+"/"+recordName, make([]byte, 100), 0o600))
	r.give(r.draft(1, 1))
	r.start()
	report := r.until("it is told", func(r *Report) bool { return len(r.Waits) > 0 })
	require.Contains(t, report.Waits[0], "nothing is done")
	require.Contains(t, strings.Join(report.Problems, ""), "damaged")
	require.NoError(t, os.RemoveAll(damaged))
	r.follows()
	r.until("it goes on", settled(1, 1))
}

func TestWhatIsInTheWayIsToldAndTheFormerStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	pid := r.pid("1")
	r.end()

	t.Run("the kept bundle is damaged, and the folder has it", func(t *testing.T) {
		require.NoError(t, os.WriteFile(r.o.State+"/"+keptName, []byte("not what was written"), 0o600))
		r.start()
		r.until("it is in effect again", settled(1, 1))
		require.Equal(t, pid, r.pid("1"))
		require.FileExists(t, r.o.State+"/"+keptName+".damaged")
	})
	t.Run("the folder has a lower revision than is in effect", func(t *testing.T) {
		r.give(r.draft(4, 1))
		r.until("it is in effect", settled(4, 1))
		r.give(r.draft(3, 2))
		report := r.until("it is refused", func(r *Report) bool { return len(r.Waits) > 0 })
		require.Contains(t, report.Waits[0], "revision 4 is in effect")
		require.Equal(t, uint64(4), report.InEffect.Revision)
	})
	t.Run("nothing can be kept on the disk", func(t *testing.T) {
		kept := r.o.State + "/" + keptName
		require.NoError(t, os.Remove(kept))
		require.NoError(t, os.MkdirAll(kept+"/in the way", 0o700))
		r.give(r.draft(5, 2, 1))
		report := r.until("it is told", func(r *Report) bool { return strings.Contains(strings.Join(r.Problems, ""), "keep the bundle in") })
		require.Equal(t, uint64(4), report.InEffect.Revision)
		require.True(t, lives(pid))
		require.NoError(t, os.RemoveAll(kept))
		r.until("it goes on", settled(5, 2))
	})
}
