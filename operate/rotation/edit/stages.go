package edit

import (
	"fmt"
	"slices"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Replacement is a provider or key and what takes its place.
type Replacement struct {
	// Old is a name as [Provider] has it, and With are further keys of the same
	// provider, which go with it.
	Old  string
	With []string
	New  Provider
	// Entry, if it is not 0, is the one of the file, counted from 1, that it is for.
	// Else it is for all that Old writes.
	Entry int
}

// Advance makes the file of a later stage of a rotation from that of an earlier
// one. It makes it the same from whatever stage it begins, except that going
// back is not possible: the file of [rotation.Removed] no longer says
// where the old plugin is.
func Advance(file []byte, from, to rotation.Stage, all ...Replacement) ([]byte, error) {
	at, end := slices.Index(rotation.Stages[:], from), slices.Index(rotation.Stages[:], to)
	if at < 0 || end < at {
		return nil, fmt.Errorf("encryption configuration: stage %q cannot be made from stage %q: keep a copy of the file to go back", to, from)
	}
	for _, stage := range rotation.Stages[at+1 : end+1] {
		for _, r := range all {
			var err error
			if file, err = r.enter(file, stage); err != nil {
				return nil, fmt.Errorf("stage %q: %w", stage, err)
			}
		}
	}
	return file, nil
}

// Retreat makes the file before a rotation from that of a later stage, as far as
// [rotation.Swapped]: it leads to the same files, if not to the very bytes that
// there were.
func Retreat(file []byte, from rotation.Stage, all ...Replacement) ([]byte, error) {
	for at := from; at != rotation.Before; {
		to := rotation.Before
		for _, r := range all {
			var err error
			switch at {
			case rotation.Added:
				file, err = removeNew(file, r)
			case rotation.Swapped:
				to = rotation.Added
				file, err = swapBack(file, r)
			default:
				err = fmt.Errorf("encryption configuration: there is no way back from stage %q", at)
			}
			if err != nil {
				return nil, err
			}
		}
		at = to
	}
	return file, nil
}

// enter makes the file of a stage from that of the one before.
func (r Replacement) enter(file []byte, stage rotation.Stage) ([]byte, error) {
	switch stage {
	case rotation.Added:
		return addReader(file, r)
	case rotation.Swapped:
		return swap(file, r)
	default:
		return removeOld(file, r)
	}
}

// Hashes are those of the files of all stages, as apiservers tell them and
// [rotation.Plan] wants them, for an apiserver with the file before.
func Hashes(before []byte, all ...Replacement) ([]string, error) {
	var hashes []string
	for _, stage := range rotation.Stages {
		file, err := Advance(before, rotation.Before, stage, all...)
		if err != nil {
			return nil, err
		}
		hashes = append(hashes, hashed.Name(file))
	}
	return hashes, nil
}
