package tpm_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// A node has a TPM with a file that a plugin serves, and what is known of them.
type node struct {
	chip        *swtpmtest.TPM
	path        string
	recoveryKey string // of the file
	session     kmsplugin.Session
	sick        bool // the TPM was cleared, or has other PCRs than its keys are bound to
}

func (n *node) store(t *testing.T, pcrs string, set func(*tpm.Config)) *tpm.Store {
	return configured(t, n.chip, n.path, func(config *tpm.Config) {
		config.PCRs = pcrs
		set(config)
	})
}

// A world is some nodes, of which each makes versions, with copies of their files.
type world struct {
	*rand.Rand
	nodes  []*node
	copies []struct{ path, recoveryKey string }
	known  map[string]sealed // by the id of a version
	spare  *swtpmtest.TPM
}

func newWorld(t *testing.T, seed int64) *world {
	w := &world{Rand: rand.New(rand.NewSource(seed)), known: map[string]sealed{}, spare: swtpmtest.Start(t)}
	for range 3 {
		w.nodes = append(w.nodes, &node{chip: swtpmtest.Start(t), path: filepath.Join(t.TempDir(), "kek.json")})
	}
	_, recoveryKey, err := w.nodes[0].store(t, "", nothing).Create(t.Context(), true)
	require.NoError(t, err)
	for i, n := range w.nodes {
		n.recoveryKey = recoveryKey
		if i > 0 {
			_, err = n.store(t, "", nothing).Recover(t.Context(), recoveryKey, w.copy(t, w.nodes[0]))
			require.NoError(t, err)
		}
		n.session, _, err = looked(t, n.store(t, "", nothing))
		require.NoError(t, err)
	}
	return w
}

func nothing(*tpm.Config) {}

func (w *world) copy(t *testing.T, n *node) (path string) {
	data, err := os.ReadFile(n.path)
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), fmt.Sprintf("%d.json", len(w.copies)))
	require.NoError(t, os.WriteFile(path, data, 0o600))
	w.copies = append(w.copies, struct{ path, recoveryKey string }{path, n.recoveryKey})
	return path
}

// A step is what was done to a node.
type step struct {
	what   string
	err    error
	must   bool            // it must have no error
	gone   map[string]bool // the versions that it may remove
	healed bool            // without an error the node is sick no more
}

func (w *world) step(t *testing.T, at int, had map[string]tpm.KeyInfo) (s step) {
	n := w.nodes[at]
	pcrs := []string{"", tpm.NoPCRs, "sha256:7"}[w.Intn(3)]
	s.gone = map[string]bool{}
	pick := func(fits func(tpm.KeyInfo) bool) (id string) {
		for _, info := range had {
			if fits(info) {
				id = max(id, info.ID)
			}
		}
		return id
	}
	switch do := w.Intn(14); {
	case do < 2 && len(had) < 6:
		s.what, s.must = "rotate or stage", !n.sick
		change := []func(*tpm.Store, context.Context) (tpm.KeyInfo, error){(*tpm.Store).Rotate, (*tpm.Store).Stage}[do]
		_, s.err = change(n.store(t, "", nothing), t.Context())
	case do < 4:
		s.what, s.must = "activate", true
		_, s.err = n.store(t, "", nothing).Activate(t.Context(), pick(func(tpm.KeyInfo) bool { return true }))
	case do == 4 && at == 0 && len(had) > 1:
		id := pick(func(info tpm.KeyInfo) bool { return !info.Writes })
		s.what, s.must, s.gone[id] = "destroy", true, true
		_, s.err = n.store(t, "", nothing).Destroy(t.Context(), id)
	case do < 7:
		anew, key := w.Intn(2) == 0, ""
		s.what, s.must = fmt.Sprintf("reseal --pcrs %q --recovery=%v", pcrs, anew), !n.sick
		if _, key, s.err = n.store(t, pcrs, nothing).Reseal(t.Context(), anew); s.err == nil && anew {
			n.recoveryKey = key
		}
	case do == 7:
		s.what = "extend"
		extend(t, n.chip, 7)
		n.sick = n.sick || pick(func(info tpm.KeyInfo) bool { return info.PCRs != "" }) != ""
	case do == 8 && w.Intn(3) == 0:
		s.what, n.sick = "clear", true
		clearTPM(t, n.chip)
	case do == 9:
		s.what, s.must, s.healed = "recover", true, true
		_, s.err = n.store(t, pcrs, nothing).Recover(t.Context(), n.recoveryKey, "")
	default:
		return w.recoverCopy(t, at, pcrs, had)
	}
	return s
}

func (w *world) recoverCopy(t *testing.T, at int, pcrs string, had map[string]tpm.KeyInfo) step {
	if w.Intn(3) > 0 {
		w.copy(t, w.nodes[w.Intn(at+1)])
	}
	n, c, adopt, remove := w.nodes[at], w.copies[w.Intn(len(w.copies))], w.Intn(2) == 0, w.Intn(2) == 0
	s := step{what: fmt.Sprintf("recover %s --pcrs %q --adopt-recovery=%v --remove-destroyed=%v", c.path, pcrs, adopt, remove), healed: true, gone: map[string]bool{}}
	for id := range had {
		s.gone[id] = remove
	}
	set := func(config *tpm.Config) { config.Adopt, config.RemoveDestroyed = adopt, remove }
	if _, s.err = n.store(t, pcrs, set).Recover(t.Context(), c.recoveryKey, c.path); s.err == nil && adopt {
		n.recoveryKey = c.recoveryKey
	}
	return s
}

// versions are those in a file, by id.
func versions(t *testing.T, path string) map[string]tpm.KeyInfo {
	s, err := tpm.New(tpm.Config{File: path})
	require.NoError(t, err)
	infos, err := s.List()
	require.NoError(t, err)
	all := map[string]tpm.KeyInfo{}
	for _, info := range infos {
		all[info.ID] = info
	}
	return all
}

// requireReads: a plugin that starts and the one that serves say the same, and all that was ever wrapped
// under a version of the file is read.
func (w *world) requireReads(t *testing.T, n *node) {
	fresh, found, err := looked(t, n.store(t, "", nothing))
	_, live := n.session.Versions(t.Context())
	require.Equal(t, err == nil, live == nil, "one that starts: %v; the one that serves: %v", err, live)
	require.Equal(t, n.sick, err != nil, "%v", err)
	if err != nil {
		return
	}
	require.Len(t, found.All, len(versions(t, n.path)))
	v := found.All[found.Writes]
	ciphertext, _, err := fresh.Wrap(t.Context(), v, dek, []byte(v.KeyID()))
	require.NoError(t, err)
	w.known[v.Label] = sealed{v, ciphertext}
	for _, v := range found.All {
		if known, is := w.known[v.Label]; is {
			requireOpens(t, fresh, known)
			requireOpens(t, n.session, known)
		}
	}
}

// Whatever is done to the files of three nodes in any order loses no version that was not to be lost, and
// the recovery key that is said to be good is.
func TestNothingIsLostWhateverIsDoneInAnyOrder(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Log("seed", seed)
	w := newWorld(t, seed)
	for range 40 {
		at := w.Intn(len(w.nodes))
		n := w.nodes[at]
		before, had := content(t, n.store(t, "", nothing)), versions(t, n.path)
		s := w.step(t, at, had)
		t.Log(at, s.what, s.err)
		has := versions(t, n.path)
		for id := range had {
			require.True(t, has[id].ID == id || s.gone[id], "version %s is lost", id)
		}
		if s.err != nil {
			require.False(t, s.must)
			require.True(t, bytes.Equal(before, content(t, n.store(t, "", nothing))), "after an error all is as it was")
		}
		n.sick = n.sick && (s.err != nil || !s.healed)
		w.requireReads(t, n)
		if w.Intn(5) == 0 {
			spare := store(t, w.spare, tpm.NoPCRs)
			_, err := spare.Recover(t.Context(), n.recoveryKey, w.copy(t, n))
			require.NoError(t, err)
			session, _, err := looked(t, spare)
			require.NoError(t, err)
			w.requireReads(t, &node{chip: w.spare, path: spare.Path(), session: session})
		}
	}
	for _, n := range w.nodes {
		requireNothingLoaded(t, n.chip)
	}
}
