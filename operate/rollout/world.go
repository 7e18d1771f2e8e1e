package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/reencrypt"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// world is the cluster, as a rotation sees and changes it; see [drive.World].
type world struct {
	fleet     proof.Fleet
	prover    *proof.Prover
	stages    stages
	store     *reencrypt.Store
	samples   proof.Samples
	providers []string // of the rotation
	resources []schema.GroupResource
	// rotation is what this is the world of, and found what the files were.
	rotation *Rotation
	found    configurations
	// located are those that are known to be in the etcd that is looked into.
	located map[schema.GroupResource]bool
	watcher Watcher
	// without are apiservers that are known to exist and are not of the rotation.
	without []string
	// cluster is the UID of the cluster's namespace kube-system, nil if none was told.
	cluster *string
	// seen is what the apiservers told last.
	seen map[string]rotation.Instance
	// files is what was last read of the files that the rotation changes, by apiserver.
	files map[string]onDisk
	// late are the reads of files on the disk that hang, by apiserver.
	late  map[string]<-chan localFile
	looks int
}

// Observe tells of the apiservers that nobody named, too: that they are there. The files
// come first, as what the apiservers answer must not be old when it is looked at.
func (w *world) Observe(ctx context.Context) map[string]rotation.Instance {
	w.readFiles(ctx)
	w.seen = w.fleet.Observe(ctx)
	others, err := proof.Unnamed(ctx, w.fleet, w.without)
	if err != nil {
		others = []fleet.Other{{Name: proof.AnyOther, Why: err.Error()}}
	}
	for _, other := range others {
		w.seen[other.Name] = rotation.Instance{Problem: other.Why}
	}
	for apiserver, file := range w.files {
		seen := w.seen[apiserver]
		seen.FileHash, seen.FileProblem = file.hash, file.problem
		w.seen[apiserver] = seen
	}
	w.readReady(ctx)
	return w.seen
}

// onDisk is the hash of a file, or why it could not be read.
type onDisk struct{ hash, problem string }

// readFiles tells what the files are that the rotation changes. A program that reaches
// them is asked for one with each look, in turn, and for those that were just written.
func (w *world) readFiles(ctx context.Context) {
	if w.files == nil {
		return
	}
	if local, ok := w.stages.files.(LocalFiles); ok {
		w.readLocal(ctx, local)
	} else {
		w.looks++
		for i, apiserver := range w.rotation.Apiservers {
			if _, known := w.files[apiserver]; !known || i == w.looks%len(w.rotation.Apiservers) {
				file, err := w.stages.files.Read(ctx, apiserver)
				w.files[apiserver] = onDiskOf(file, err)
			}
		}
	}
}

func onDiskOf(file []byte, err error) onDisk {
	if err != nil {
		return onDisk{problem: err.Error()}
	}
	return onDisk{hash: hashed.Name(file)}
}

// readLocal reads all files on the disk. Where one hangs it is not begun again before that
// has ended, and what came of it then is of no use, as it may be long past.
func (w *world) readLocal(ctx context.Context, files LocalFiles) {
	within, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	begun := map[string]<-chan localFile{}
	for _, apiserver := range w.rotation.Apiservers {
		if late := w.late[apiserver]; late == nil || len(late) > 0 {
			begun[apiserver] = files.read(apiserver)
		}
	}
	for _, apiserver := range w.rotation.Apiservers {
		if begun[apiserver] == nil {
			w.files[apiserver] = onDiskOf(nil, files.noAnswer(ctx, apiserver))
			continue
		}
		select {
		case file := <-begun[apiserver]:
			w.files[apiserver] = onDiskOf(file.content, file.err)
			delete(w.late, apiserver)
		case <-within.Done():
			w.files[apiserver] = onDiskOf(nil, files.noAnswer(ctx, apiserver))
			w.late[apiserver] = begun[apiserver]
		}
	}
}

// ErrUndone says that a rotation which was finished is so no more.
var ErrUndone = errors.New("the rotation was finished, and another configuration is in effect now, so that nothing may be stopped or disabled")

// stillSo wraps [ErrUndone] if a rotation was finished and an apiserver has another
// configuration in effect than it ended with.
func (w *world) stillSo(ctx context.Context, s rotation.State) error {
	steps := s.Steps()
	if again := s.Move != nil && s.Move.Finished; !again && !steps[len(steps)-1].Now {
		return nil
	}
	seen := w.Observe(ctx)
	for _, name := range slices.Sorted(maps.Keys(s.Plan.Configs)) {
		hashes := s.Plan.Configs[name]
		want := hashes[len(hashes)-1]
		if s.Move != nil && s.Move.Back != nil {
			want = hashes[0]
		}
		switch {
		case seen[name].ConfigHash != "" && seen[name].ConfigHash != want:
			return fmt.Errorf("%w: apiserver %s has %s, not %s: put that one back, or name a new folder to rotate again", ErrUndone, name, seen[name].ConfigHash, want)
		case seen[name].FileHash != "" && seen[name].FileHash != want:
			return fmt.Errorf("%w at the next start of apiserver %s: its file has %s, not %s: put that one back, or name a new folder to rotate again", ErrUndone, name, seen[name].FileHash, want)
		}
	}
	return nil
}

// met is an error if the key_id that is to be left was never met: then nothing tells when
// another is written with. A state has met it, or an apiserver tells it, or etcd has it.
func (w *world) met(ctx context.Context, s *rotation.State) error {
	p := s.OnePlugin
	if p == nil || p.From == "" || slices.Contains(p.Seen, p.From) {
		return nil
	}
	for _, i := range w.fleet.Observe(ctx) {
		for _, provider := range p.Providers {
			if told := i.Providers[provider]; told.KeyID == p.From || told.WroteKeyID == p.From {
				return nil
			}
		}
	}
	a, err := w.Audit(ctx, s.Plan.Resources)
	if err != nil {
		return fmt.Errorf("whether anything is stored under key_id %s of --from is not known: %w", p.From, err)
	}
	for _, c := range a.Counts {
		if c.Objects > 0 && c.KeyID == p.From {
			return nil
		}
	}
	return fmt.Errorf("no apiserver tells of key_id %s, and nothing is stored under it, so it cannot be left: give --from current, or the key_id or hash that atrest audit has", p.From)
}

func (w *world) WriteConfig(ctx context.Context, apiserver string, to rotation.Stage, hash string) error {
	if err := w.shared(apiserver, to); err != nil {
		return err
	}
	delete(w.files, apiserver)
	return w.stages.bring(ctx, apiserver, to, hash)
}

// shared is an error if a file is to be taken back that is another apiserver's too, which
// writes with the new provider: it would be written to and fro.
func (w *world) shared(apiserver string, to rotation.Stage) error {
	files, ok := w.stages.files.(interface{ At(apiserver string) string })
	swapped := slices.Index(rotation.Stages[:], rotation.Swapped)
	if !ok || w.stages.back || slices.Index(rotation.Stages[:], to) >= swapped {
		return nil
	}
	for _, other := range w.rotation.Apiservers {
		if files.At(other) == files.At(apiserver) && slices.Index(w.stages.hashes[other], w.seen[other].ConfigHash) >= swapped {
			return fmt.Errorf("%s is the file of %s too, which writes with the new provider, and so does not become that of stage %q: start %s anew as soon as it is that of stage %q",
				files.At(apiserver), other, to, apiserver, rotation.Swapped)
		}
	}
	return nil
}

func (w *world) Migrate(ctx context.Context, goal rotation.Goal, providers []string, resource string) error {
	var done migrate.Counts
	defer func() { w.watcher.Rewrote(resource, done) }()
	return w.store.Rewrite(ctx, schema.ParseGroupResource(resource), fmt.Sprintf("%s/%d", goal.KeyID, goal.Round), outside(goal, providers), func(p migrate.Progress) {
		done = p.Counts
		w.watcher.Rewriting(resource, p)
	})
}

// outside reports of a form whether it has to be rewritten for a goal.
func outside(goal rotation.Goal, providers []string) func(audit.Form) bool {
	return func(f audit.Form) bool {
		switch f.Kind {
		case audit.Unknown, audit.Undecodable:
			return false // no apiserver can read it, so none can write it again
		}
		return !slices.Contains(providers, nameOf(f)) || !goal.Keyless && f.KeyIDHash != goal.KeyID
	}
}

// Audit counts everything that is stored: what needs the old key can be of a
// resource that is served no more, is newer than the plan, or is stored where
// nobody would look for it.
func (w *world) Audit(ctx context.Context, resources []string) (rotation.Audit, error) {
	canaries := map[rotation.Count]int64{}
	report, err := w.store.CountEverything(ctx, func(r schema.GroupResource, key string, f audit.Form) {
		if fleet.IsCanary(r, path.Base(key)) {
			canaries[w.countOf(r.String(), f)]++
		}
	})
	if err != nil {
		return rotation.Audit{}, err
	}
	counts, found := w.countsOf(report, canaries), false
	for _, c := range counts {
		if c.Resource == audit.Rest {
			return rotation.Audit{}, fmt.Errorf("more than %d resources and ways to store them are not told apart: have everything rewritten with atrest migrate first", audit.MaxRows)
		}
		found = found || slices.Contains(w.providers, c.Provider)
	}
	if !found { // all apiservers wrote with one of them
		return rotation.Audit{}, fmt.Errorf("no object below %s is stored with %s, which proves nothing: is this the etcd of these apiservers, and their --etcd-prefix? If so, create an object of one of %s",
			w.store.Audit.Layout.Prefix(), quoted(w.providers), strings.Join(resources, ", "))
	}
	return rotation.Audit{Counts: counts, Etcds: etcdsOf(report)}, w.prover.Present(ctx, w.resources)
}

func parsed(resources []string) []schema.GroupResource {
	var all []schema.GroupResource
	for _, name := range resources {
		all = append(all, schema.ParseGroupResource(name))
	}
	return all
}

// countsOf are the counts of a report, as a rotation wants them. The canaries are by
// what countOf gives.
func (w *world) countsOf(report *audit.Report, canaries map[rotation.Count]int64) []rotation.Count {
	var counts []rotation.Count
	for _, resource := range report.Resources {
		for _, stored := range resource.Forms {
			c := w.countOf(resource.Name, stored.Form)
			among := min(canaries[c], stored.Objects) // forms that are one here may be several rows
			canaries[c] -= among
			c.Objects, c.Canaries = stored.Objects, among
			counts = append(counts, c)
		}
	}
	return counts
}

// countOf is the count of no object that is stored in a form. What is plain text is
// counted as such of the resources that are to be, or were.
func (w *world) countOf(resource string, f audit.Form) rotation.Count {
	c := rotation.Count{Resource: resource}
	switch name := nameOf(f); {
	case f.Kind.IsKMS():
		c.Provider, c.KeyID = name, f.KeyIDHash
	case slices.Contains(w.providers, name) && (name != rotation.Plain || w.stores(resource)):
		c.Provider = name
	case f.Kind == audit.Unknown || f.Begins.IsKMS():
		c.Provider = rotation.Unreadable
	}
	return c
}

// stores reports whether a resource is one of the rotation, by the file of some apiserver.
func (w *world) stores(resource string) bool {
	for apiserver, c := range w.found.parsed {
		if chain := c.For(schema.ParseGroupResource(resource)); len(chain) > 0 && among(chain, w.providers) && w.rotation.isMoved(chain, apiserver) {
			return true
		}
	}
	return false
}

// etcdsOf are the etcd clusters that a report is of.
func etcdsOf(report *audit.Report) []rotation.Etcd {
	all := []rotation.Etcd{{Cluster: report.Cluster, Revision: report.Revision}}
	for _, part := range report.Parts {
		if part.Cluster != report.Cluster {
			all = append(all, rotation.Etcd{Cluster: part.Cluster, Revision: part.Revision})
		}
	}
	return all
}

func quoted(names []string) string {
	return `"` + strings.Join(names, `", "`) + `"`
}
