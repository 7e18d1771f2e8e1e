package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// join brings the apiservers that came instead of others into a plan.
func (r *Rotation) join(ctx context.Context, p *rotation.Plan, found configurations) error {
	configs, err := r.coming(ctx, p, found)
	if err != nil {
		return err
	}
	for _, replaced := range r.Replaced {
		_, known := p.Configs[replaced.Old]
		_, there := p.Configs[replaced.New]
		switch {
		case there && configs[replaced.New] != nil:
			p.Configs[replaced.New] = configs[replaced.New]
			continue
		case there || replaced.Old != "" && !known:
			continue // it was done by an earlier run
		case replaced.New == "":
		case found.files[replaced.New] == nil:
			return fmt.Errorf("apiserver %q is to come instead of %q, and is not among the apiservers: name it with --apiservers", replaced.New, replaced.Old)
		default:
			p.Configs[replaced.New] = configs[replaced.New]
		}
		delete(p.Configs, replaced.Old)
	}
	began, named := slices.Sorted(maps.Keys(p.Configs)), slices.Sorted(slices.Values(r.Apiservers))
	if !slices.Equal(began, named) {
		return fmt.Errorf("folder %s %w: it began with %s, and %s are named: name those, or say with --replace-apiserver OLD=NEW which one came instead of which",
			r.Folder.Path, ErrOtherApiservers, strings.Join(began, ", "), strings.Join(named, ", "))
	}
	return nil
}

// coming are the hashes of the files of those that are to come in, and are not in the plan
// yet, or have another file by now than they came with, as it was mended. On the way back,
// on which a key may be nowhere any more, one that has the file which another had before
// has that one's.
func (r *Rotation) coming(ctx context.Context, p *rotation.Plan, found configurations) (map[string][]string, error) {
	configs, unlike := map[string][]string{}, false
	m, _ := r.Kind.(Move)
	for _, replaced := range r.Replaced {
		file := found.files[replaced.New]
		if known := p.Configs[replaced.New]; file == nil || known != nil && slices.Contains(known, hashed.Name(file)) {
			continue
		}
		if m.Back != nil {
			configs[replaced.New] = likeBefore(*p, file)
		}
		unlike = unlike || configs[replaced.New] == nil
	}
	if !unlike {
		return configs, nil
	}
	configs, err := r.Kind.hashes(found.files, r.Folder.copies())
	if err != nil {
		return nil, err
	}
	return configs, errors.Join(r.readable(found), r.fits(ctx, p, found))
}

// likeBefore are the hashes of an apiserver that had this file before; nil if none had.
func likeBefore(p rotation.Plan, file []byte) []string {
	for _, name := range slices.Sorted(maps.Keys(p.Configs)) {
		if hashes := p.Configs[name]; hashes[0] == hashed.Name(file) {
			return hashes
		}
	}
	return nil
}

// fits tells why an apiserver that comes in has no place in the rotation: it wrote otherwise
// than the others, or something in its file needs the plugin that is left.
func (r *Rotation) fits(ctx context.Context, p *rotation.Plan, found configurations) error {
	m, moves := r.Kind.(Move)
	if !moves {
		return nil
	}
	leaving := m.From
	if m.Back != nil {
		leaving = m.To
	}
	came := configurations{parsed: map[string]*config.Configuration{}}
	for _, replaced := range r.Replaced {
		if c := found.parsed[replaced.New]; c != nil {
			came.parsed[replaced.New] = c
		}
	}
	return errors.Join(r.writesAlike(m, p, found, came), came.alone(leaving, m.providers()), came.sameKey(r.Fleet.Observe(ctx), leaving, m.providers()))
}

// writesAlike refuses one that comes in and wrote, before the rotation, what none of the
// others did: no stage leads from there to theirs.
func (r *Rotation) writesAlike(m Move, p *rotation.Plan, found, came configurations) error {
	before := r.before(m, p, found, came)
	for _, resource := range parsed(found.resources) {
		others := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(before)) {
			if came.parsed[name] == nil {
				others[writerOf(before[name], resource)] = name
			}
		}
		for _, name := range slices.Sorted(maps.Keys(came.parsed)) {
			if before[name] == nil || len(others) == 0 {
				continue // nothing to hold against the other
			}
			if writer := writerOf(before[name], resource); others[writer] == "" {
				other := slices.Sorted(maps.Keys(others))[0]
				return fmt.Errorf("configuration of %s: %s is written with %s, and that of %s with %s before the rotation: give it the file of that one, as it is now or was before",
					name, resource, shownNames([]string{writer}), others[other], shownNames([]string{other}))
			}
		}
	}
	return nil
}

// before are the configurations as they were before a move, of those of which the file, or
// the copy that is kept of it, tells that. Of one that comes in a copy may be of another file.
func (r *Rotation) before(m Move, p *rotation.Plan, found, came configurations) map[string]*config.Configuration {
	all := map[string]*config.Configuration{}
	for name, file := range found.files {
		if kept := r.Folder.copies().read(rotation.Before, name); came.parsed[name] == nil && p.Configs[name] != nil && hashed.Name(kept) == p.Configs[name][0] {
			file = kept
		}
		if file, err := beforeOf(file, m.Changes(name)); err == nil {
			if c, err := configurationOf(file, ""); err == nil {
				all[name] = c
			}
		}
	}
	return all
}

// writerOf is what a resource is written with.
func writerOf(c *config.Configuration, resource schema.GroupResource) string {
	if chain := c.For(resource); len(chain) > 0 {
		return namesOf(chain[0])[0]
	}
	return rotation.Plain
}
