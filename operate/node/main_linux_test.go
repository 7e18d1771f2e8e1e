package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// asLauncher is the first argument of this test when it is run to become a plugin.
const asLauncher = "launch-a-plugin"

// asBlind is that when it is run where /proc hides what others run.
const asBlind = "look-blindly"

// asStranger is that when it runs as somebody who is not root, and asHidden as a plugin of that one.
const asStranger, asHidden = "not-root", "hidden"

// asHeadless is that when its first thread ends, and it goes on.
const asHeadless = "headless"

// asAgain is that when it begins itself again and again, from another thread than its first.
const asAgain = "again"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asLauncher {
		fmt.Fprintln(os.Stderr, Launch(os.Args[2:]))
		os.Exit(1)
	}
	if len(os.Args) > 4 && os.Args[1] == asFaulty {
		faulty(os.Args[2:])
	}
	if len(os.Args) > 2 && os.Args[1] == asBlind {
		os.Exit(lookBlindly(os.Args[2]))
	}
	if len(os.Args) > 2 && os.Args[1] == asStranger {
		os.Exit(endHidden(os.Args[2]))
	}
	if len(os.Args) > 1 && os.Args[1] == asHeadless {
		loseFirstThread()
	}
	if len(os.Args) > 2 && os.Args[1] == asAgain {
		beginAgain(os.Args[2])
	}
	if len(os.Args) > 1 && os.Args[1] == asHidden {
		hide()
	}
	code := m.Run()
	if built.folder != "" {
		_ = os.RemoveAll(built.folder)
	}
	os.Exit(code)
}

// builtPlugin in the environment is the path of atrest-kms-plugin, where another process built it.
const builtPlugin = "ATREST_NODE_BUILT_PLUGIN"

var built struct {
	once   sync.Once
	folder string
	err    error
}

// realPlugin is the path of atrest-kms-plugin, built once. That is of another module of the
// workspace, also where this one is tested without it.
func realPlugin(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(builtPlugin); path != "" {
		return path
	}
	built.once.Do(func() {
		if built.folder, built.err = os.MkdirTemp("", "node"); built.err != nil {
			return
		}
		build := exec.Command("go", "build", "-o", built.folder+"/plugin", ".")
		build.Dir, build.Env = "../../kmsplugin/cmd/atrest-kms-plugin", append(os.Environ(), "GOWORK=")
		said, err := build.CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w: %s", err, said)
		}
	})
	require.NoError(t, built.err)
	return built.folder + "/plugin"
}

// A rig is a node in this process, with folders of its own and an apiserver that a test plays.
type rig struct {
	t      *testing.T
	folder string
	o      Options
	api    *played
	stop   context.CancelFunc
	ended  chan error
	node   *Node
	// mounted are the folders that were mounted for this test.
	mounted []string

	mu  sync.Mutex
	log []string
}

// played is an apiserver of which a test says what it has in effect.
type played struct {
	mu     sync.Mutex
	config string
	err    error
	follow string // the file that it follows
}

func (p *played) Name() string { return "127.0.0.1:6443" }

func (p *played) Ask(context.Context) (Answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follow != "" {
		if content, err := readConfig(p.follow); err == nil && content != nil {
			p.config = hashOf(content)
		}
	}
	return Answer{Process: "p", Config: p.config}, p.err
}

func (p *played) set(change func(*played)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	folder, err := os.MkdirTemp("", "n")
	require.NoError(t, err)
	r := &rig{t: t, folder: folder, api: &played{}}
	r.o = Options{
		Bundles: folder + "/bundle", State: folder + "/state", Run: folder + "/run", ConfigFile: folder + "/config.yaml",
		Apiservers: []Asker{r.api}, Clock: clock.RealClock{},
		Every: 20 * time.Millisecond, AskEvery: 50 * time.Millisecond, Timeout: 30 * time.Second,
		Grace: 100 * time.Millisecond, Patience: 30 * time.Second,
		Runner: &Processes{Launcher: []string{os.Args[0], asLauncher}, Program: realPlugin(t), Limits: Limits{Memory: 1 << 30, Files: 256}, Env: []string{"PATH=/usr/bin:/bin"}},
		Log: func(line string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.log = append(r.log, line)
		},
	}
	t.Cleanup(func() {
		defer func() {
			if t.Failed() {
				t.Log(r.logged())
			}
		}()
		r.end()
		r.killAll()
		for _, folder := range r.mounted {
			require.NoError(t, unix.Unmount(folder, unix.MNT_DETACH))
		}
		require.NoError(t, os.RemoveAll(folder))
	})
	return r
}

func (r *rig) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.log, "\n")
}

// start has a node run, as after a start of the command.
func (r *rig) start() {
	r.t.Helper()
	n, err := New(r.o)
	require.NoError(r.t, err)
	ctx, stop := context.WithCancel(context.Background())
	r.node, r.stop, r.ended = n, stop, make(chan error, 1)
	go func() { r.ended <- n.Run(ctx) }()
}

// runs gives a node that starts its first bundle, with keyID 1, and waits until that is in effect.
func (r *rig) runs() *Report {
	r.t.Helper()
	r.give(r.draft(1, 1))
	r.follows()
	r.start()
	return r.until("the first bundle is in effect", settled(1, 1))
}

func (r *rig) end() {
	if r.stop != nil {
		r.stop()
		require.NoError(r.t, <-r.ended)
		r.stop = nil
	}
}

// killAll ends what the test left, by what is on record.
func (r *rig) killAll() {
	found, _, err := instances{filepath.Join(r.o.Run, "instances")}.all()
	require.NoError(r.t, err)
	for _, in := range found {
		// One that was just started is about to become its program.
		require.Eventually(r.t, func() bool { return r.o.Runner.Stop(in.Spec, true) == nil }, time.Minute, 10*time.Millisecond)
		require.Eventually(r.t, func() bool { runs, err := r.o.Runner.Runs(in.Spec); return err == nil && !runs }, time.Minute, 10*time.Millisecond)
	}
}

// until waits for what a report is to tell.
func (r *rig) until(what string, ok func(*Report) bool) *Report {
	r.t.Helper()
	var last *Report
	require.Eventually(r.t, func() bool { last = r.node.Report(); return ok(last) }, time.Minute, 10*time.Millisecond, what)
	return last
}

// settled is that a revision is in effect, and nothing is left to do.
func settled(revision uint64, plugins int) func(*Report) bool {
	return func(r *Report) bool {
		well := len(r.Plugins) == plugins
		for _, p := range r.Plugins {
			well = well && p.Well && p.Linked
		}
		return well && r.InEffect != nil && r.InEffect.Revision == revision && len(r.Waits) == 0
	}
}

// keys makes the key file of a keyID.
func (r *rig) keys(keyID int) string {
	path := fmt.Sprintf("%s/kek-%d.json", r.folder, keyID)
	if _, err := os.Stat(path); err != nil {
		said, err := exec.Command(realPlugin(r.t), "keyfile", "create", "--key-file", path).CombinedOutput()
		require.NoError(r.t, err, string(said))
	}
	return path
}

// configOf is a configuration with a provider for each keyID.
func (r *rig) configOf(keyIDs ...int) string {
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n"
	for _, keyID := range keyIDs {
		text += fmt.Sprintf("  - kms: {apiVersion: v2, name: \"%d_secrets\", endpoint: \"unix://%s/kms/kms-%d.sock\", timeout: 3s}\n", keyID, r.folder, keyID)
	}
	return text + "  - identity: {}\n"
}

// draft is a bundle of plugins with a key file each; change may have it otherwise.
func (r *rig) draft(revision uint64, keyIDs ...int) bundle.Draft {
	d := bundle.Draft{Revision: revision, EncryptionConfig: []byte(r.configOf(keyIDs...))}
	for _, keyID := range keyIDs {
		d.Plugins = append(d.Plugins, bundle.DraftPlugin{KeyID: bundle.KeyID(keyID), Settings: r.settings(r.keys(keyID), "")})
	}
	return d
}

func (r *rig) settings(keyFile, more string) []byte {
	return []byte(fmt.Sprintf("apiVersion: %s\nkind: %s\nkeyFile: {path: %q}\n%s", bundle.APIVersion, bundle.SettingsKind, keyFile, more))
}

// give puts a bundle into the folder.
func (r *rig) give(d bundle.Draft) *bundle.Bundle {
	r.t.Helper()
	b, err := bundle.New(d)
	require.NoError(r.t, err)
	require.NoError(r.t, b.WriteFolder(r.o.Bundles))
	return b
}

// follows has the apiserver take every file into effect.
func (r *rig) follows() { r.api.set(func(p *played) { p.follow = r.o.ConfigFile }) }

// pid is the process of the instance that has the stable name of a keyID, 0 if none has.
func (r *rig) pid(keyID string) int {
	r.t.Helper()
	for _, p := range r.node.Report().Plugins {
		if p.KeyID == keyID && p.Linked {
			s, err := recordOf(Spec{Folder: filepath.Join(r.o.Run, "instances", p.Instance)})
			if err == nil { // or else it is just being removed
				return s.Life.PID
			}
		}
	}
	return 0
}

func lives(pid int) bool {
	is, err := stat(pid)
	return err == nil && is.runs()
}

var errAway = errors.New("it does not answer")
