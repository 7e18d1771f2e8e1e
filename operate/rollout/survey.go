package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// configurations is what the configuration files say of a rotation.
type configurations struct {
	// files are those of the apiservers, as they are, and parsed what they say.
	files  map[string][]byte
	parsed map[string]*config.Configuration
	// resources are those that are, or were, written with the providers.
	resources []string
	// names are those of all providers and keys in the files.
	names audit.Names
	// samples has, by the provider that writes them, the resources that are written
	// to see what an apiserver writes with.
	samples proof.Samples
}

// configurationOf reads a file as an apiserver that follows its file may have it. It is
// called name in errors, if that is not empty.
func configurationOf(file []byte, name string) (*config.Configuration, error) {
	return config.Parse(file, config.Options{KMSv1: true, Reload: true, File: name})
}

// survey reads the configuration file of every apiserver. Of a rotation that has
// begun, with its plan, a write may have been cut off: what it was to leave counts
// then, as it is written again. And what a wildcard is for is as planned, if the
// cluster does not tell.
func (r *Rotation) survey(ctx context.Context, providers []string, plan rotation.Plan) (configurations, error) {
	found := configurations{files: map[string][]byte{}, parsed: map[string]*config.Configuration{}, samples: proof.Samples{}, names: expected(providers)}
	resources := map[string]bool{}
	for _, apiserver := range r.Apiservers {
		file, err := r.Files.Read(ctx, apiserver)
		if err != nil {
			return found, fmt.Errorf("configuration of %s: %w", apiserver, err)
		}
		if whole := r.Folder.copies().whole(apiserver, plan.Configs[apiserver], file); whole != nil {
			file = whole
		}
		c, err := configurationOf(file, "configuration of "+apiserver)
		if err != nil {
			return found, err
		}
		found.files[apiserver], found.parsed[apiserver] = file, c
		for kind, names := range audit.NamesIn(c) {
			found.names[kind] = append(found.names[kind], names...)
		}
		covered, err := r.coveredBy(ctx, c, plan.Resources)
		if err != nil {
			return found, err
		}
		for _, resource := range covered {
			if chain := c.For(resource); among(chain, providers) && r.isMoved(chain, apiserver) {
				resources[resource.String()] = true
				r.offer(found.samples, chain, apiserver, resource)
			}
		}
	}
	if len(resources) == 0 {
		return found, fmt.Errorf("no resource is stored with provider %s: name one that the configuration has", quoted(providers))
	}
	found.resources = slices.Sorted(maps.Keys(resources))
	return found, nil
}

// isMoved reports whether the resources of a list of providers are of the rotation: not
// those of an entry that is plain text and stays so.
func (r *Rotation) isMoved(chain []*config.Provider, apiserver string) bool {
	return chain[0].Kind() != config.Identity || !slices.ContainsFunc(r.Kind.replaced(apiserver), func(c edit.Replacement) bool {
		return c.Entry > 0 && !among(chain[:1], []string{c.Old, c.New.Name})
	})
}

// offer has a resource show what it is written with, and what takes its place or had it.
func (r *Rotation) offer(samples proof.Samples, chain []*config.Provider, apiserver string, resource schema.GroupResource) {
	writes := namesOf(chain[0])[0]
	samples.Offer(writes, resource)
	for _, c := range r.Kind.replaced(apiserver) {
		if c.Entry > 0 && c.Entry != entryOf(chain[0]) {
			continue // another entry is written with the same, and is to be with something else
		}
		if writes == c.Old || writes == c.New.Name && among(chain, []string{c.Old}) {
			samples.Offer(c.Old, resource)
			samples.Offer(c.New.Name, resource)
		}
	}
}

// entryOf is the entry of its file, counted from 1, that a provider stands in.
func entryOf(p *config.Provider) int {
	at := 0
	_, _ = fmt.Sscanf(p.Path(), "resources[%d]", &at)
	return at + 1
}

// written tells that nothing is written with a provider that is to be left. With one of
// the new providers in the file the rotation has begun already.
func (s *configurations) written(leaving, all []string) error {
	for _, apiserver := range slices.Sorted(maps.Keys(s.parsed)) {
		providers := s.parsed[apiserver].Providers()
		if slices.ContainsFunc(providers, func(p *config.Provider) bool {
			return !slices.Contains(leaving, p.KMS().Name) && slices.Contains(all, p.KMS().Name)
		}) {
			continue
		}
		for _, p := range providers {
			if name := p.KMS().Name; slices.Contains(leaving, name) && !p.Writes() {
				return fmt.Errorf("configuration of %s: nothing is written with KMS provider %q: make it the first one of its resources, or name another", apiserver, name)
			}
		}
	}
	return nil
}

// alone tells of a provider that stays and is on the plugin of one that leaves, whose key
// would be taken for one that may go.
func (s *configurations) alone(leaving, all []string) error {
	for _, apiserver := range slices.Sorted(maps.Keys(s.parsed)) {
		at := map[string]string{}
		for _, p := range s.parsed[apiserver].Providers() {
			if slices.Contains(leaving, p.KMS().Name) {
				at[path.Clean(p.KMS().Address)] = p.KMS().Name
			}
		}
		for _, p := range s.parsed[apiserver].Providers() {
			name := p.KMS().Name
			if left, shared := at[path.Clean(p.KMS().Address)]; shared && !slices.Contains(all, name) && name != "" {
				return fmt.Errorf("configuration of %s: KMS provider %q is on the same plugin as %q, and %w", apiserver, name, left, s.stays(name))
			}
		}
	}
	return nil
}

// sameKey tells of a provider that stays and has the key_id of one that leaves, as one
// has that is on the same plugin by another name of its socket. Another plugin with the
// same key may stay, if it is seen here that it is another.
func (s *configurations) sameKey(seen map[string]rotation.Instance, leaving, all []string) error {
	for _, apiserver := range slices.Sorted(maps.Keys(s.parsed)) {
		providers, has := s.parsed[apiserver].Providers(), seen[apiserver].Providers
		for _, left := range providers {
			keyID := has[left.KMS().Name].KeyID
			if keyID == "" || !slices.Contains(leaving, left.KMS().Name) {
				continue
			}
			for _, p := range providers {
				if name := p.KMS().Name; name != "" && !slices.Contains(all, name) && has[name].KeyID == keyID && !apart(p.KMS().Address, left.KMS().Address) {
					return fmt.Errorf("configuration of %s: KMS provider %q has the key_id of %q, as on the same plugin by another name of its socket, and %w", apiserver, name, left.KMS().Name, s.stays(name))
				}
			}
		}
	}
	return nil
}

// apart reports whether two sockets are here, and are two.
func apart(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && !os.SameFile(one, other)
}

// stays is what to do about a provider that needs the key of one that leaves.
func (s *configurations) stays(name string) error {
	for _, c := range s.parsed {
		if slices.ContainsFunc(c.Providers(), func(p *config.Provider) bool { return p.KMS().Name == name && p.Writes() }) {
			return errors.New("what is stored with it needs the same key: name both")
		}
	}
	return fmt.Errorf("what is stored with it, if anything is, needs the same key: have everything rewritten with atrest migrate, "+
		"and take %q out when atrest check --etcd of the file without it says that it is usable", name)
}

// coveredBy lists the resources that a configuration is about: those it names,
// and where it has a wildcard those that the cluster serves, or else that were planned.
func (r *Rotation) coveredBy(ctx context.Context, c *config.Configuration, planned []string) ([]schema.GroupResource, error) {
	var all []schema.GroupResource
	wild := false
	for _, rule := range c.Rules() {
		if rule.Resource.Resource == "*" {
			wild = true
			continue
		}
		all = append(all, rule.Resource)
	}
	if wild {
		served, err := r.Cluster.Own(ctx)
		for _, name := range planned {
			all = append(all, schema.ParseGroupResource(name))
		}
		if err != nil && planned == nil {
			return nil, fmt.Errorf("the configuration has a wildcard, and what it is for cannot be listed: %w", err)
		}
		all = append(all, served...)
	}
	return all, nil
}

// has reports whether a file names resources of a group, or all of them.
func (s *configurations) has(group string) bool {
	for _, c := range s.parsed {
		if slices.ContainsFunc(c.Rules(), func(rule config.Rule) bool { return rule.Resource.Group == group || rule.Resource.Group == "*" }) {
			return true
		}
	}
	return false
}

// writing are the providers, among names, that an apiserver's file has write.
func (s *configurations) writing(apiserver string, names []string) []string {
	var all []string
	for _, p := range s.parsed[apiserver].Providers() {
		if name := namesOf(p)[0]; p.Writes() && slices.Contains(names, name) && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
