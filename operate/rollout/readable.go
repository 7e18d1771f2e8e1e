package rollout

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

func (r *Rotation) readable(found configurations) error {
	if m, ok := r.Kind.(Move); ok {
		return found.readable(m.Changes)
	}
	return nil
}

// readable refuses a move in which an apiserver would write what another does not read:
// of each resource, what any is to write has to be read by all others, those that are to
// write it next and those that have nothing else any more.
func (s *configurations) readable(changes func(apiserver string) []edit.Replacement) error {
	stages := map[rotation.Stage]map[string]*config.Configuration{}
	for _, stage := range []rotation.Stage{rotation.Added, rotation.Swapped, rotation.Removed} {
		stages[stage] = map[string]*config.Configuration{}
		for apiserver, file := range s.files {
			if c := stageOf(file, stage, changes(apiserver)); c != nil {
				stages[stage][apiserver] = c
			}
		}
	}
	for _, resource := range parsed(s.resources) {
		for _, stage := range []rotation.Stage{rotation.Added, rotation.Removed} {
			if err := readBy(resource, stages[rotation.Swapped], stages[stage]); err != nil {
				return err
			}
		}
	}
	return nil
}

// stageOf is a configuration at a stage, or nil of one that is past all that leads there.
func stageOf(file []byte, stage rotation.Stage, changes []edit.Replacement) *config.Configuration {
	before, err := beforeOf(file, changes)
	if err != nil {
		return nil
	}
	at, err := edit.Advance(before, rotation.Before, stage, changes...)
	if err != nil {
		return nil
	}
	c, err := configurationOf(at, "")
	if err != nil {
		return nil
	}
	return c
}

// readBy tells which apiserver does not read what another writes of a resource.
func readBy(resource schema.GroupResource, writers, readers map[string]*config.Configuration) error {
	for _, writer := range slices.Sorted(maps.Keys(writers)) {
		chain := writers[writer].For(resource)
		if len(chain) == 0 {
			continue
		}
		with := namesOf(chain[0])[0]
		for _, reader := range slices.Sorted(maps.Keys(readers)) {
			reads := []string{}
			for _, p := range readers[reader].For(resource) {
				reads = append(reads, namesOf(p)...)
			}
			if len(reads) == 0 {
				reads = []string{rotation.Plain} // as it is not named there
			}
			if !slices.Contains(reads, with) {
				return fmt.Errorf("%s would write %s with %s, and %s would have only %s to read it with: give the apiservers one configuration, or the entries of each file one order",
					writer, resource, shownNames([]string{with}), reader, shownNames(reads))
			}
		}
	}
	return nil
}
