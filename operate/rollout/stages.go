package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// stages brings the configuration files of apiservers from stage to stage.
type stages struct {
	files   Files
	hashes  map[string][]string // of all stages, by apiserver, as in a rotation.Plan
	changes func(apiserver string) []edit.Replacement
	copies  copies
	// local is that a new key is in the files, which is in no copy. swapped is that the new
	// one may have been written with.
	local, swapped bool
	// back is that they go back to the first.
	back bool
	// seen is what was last read of the files, by apiserver.
	seen map[string]onDisk
	// begun are the files whose write began and did not end, as no copy has them.
	begun map[string][]byte
}

// bring makes the file of an apiserver that of a stage, whose hash it has to have
// then. A file that is none of the rotation's is somebody else's, and stays,
// unless it is the beginning of the one that is wanted, as a write leaves it that
// was cut off.
func (r *stages) bring(ctx context.Context, apiserver string, to rotation.Stage, hash string) error {
	file, err := r.files.Read(ctx, apiserver)
	if err != nil {
		return err
	}
	known, is := r.hashes[apiserver], file
	at, wanted := slices.Index(known, hashed.Name(file)), slices.Index(rotation.Stages[:], to)
	if at >= 0 { // whatever was begun has ended
		if err := r.end(apiserver); err != nil {
			return err
		}
	} else if whole := r.whole(apiserver, file); whole != nil {
		file, at = whole, slices.Index(known, hashed.Name(whole))
	}
	switch {
	case at < 0:
		return r.foreign(apiserver, to, is)
	case hashed.Name(file) == hash && bytes.Equal(is, file):
		return nil
	case hashed.Name(file) == hash:
		return r.write(ctx, apiserver, to, is, file)
	case at > wanted: // it is to read what it reads no longer, or not to write with what it would
		next, err := r.earlier(ctx, apiserver, to, hash)
		if err != nil {
			return err
		}
		return r.exchange(ctx, apiserver, to, is, next)
	}
	next, err := edit.Advance(file, rotation.Stages[at], to, r.changes(apiserver)...)
	if err != nil {
		return err
	}
	if hashed.Name(next) != hash {
		return errors.New("the new file would not be the one that was planned: give --endpoint and --plugin-timeout as at the beginning")
	}
	if err := r.keep(rotation.Stages[at], apiserver, file); err != nil {
		return err
	}
	return r.exchange(ctx, apiserver, to, is, next)
}

// foreign is the error for a file that is none of the rotation's.
func (r *stages) foreign(apiserver string, to rotation.Stage, file []byte) error {
	return fmt.Errorf("the file has hash %s, which is none of this rotation's, and stays as it is: somebody changed it, "+
		"so %s", hashed.Name(file), r.mend(apiserver, r.swapped || to != rotation.Added && !r.back))
}

// exchange keeps a copy of the next file, and writes it.
func (r *stages) exchange(ctx context.Context, apiserver string, to rotation.Stage, file, next []byte) error {
	if err := r.keep(to, apiserver, next); err != nil {
		return err
	}
	return r.write(ctx, apiserver, to, file, next)
}

// keep stores the file of a stage, unless it has a new key, which is in the files alone.
func (r *stages) keep(stage rotation.Stage, apiserver string, file []byte) error {
	if r.local && stage != rotation.Before {
		return nil
	}
	if err := r.copies.keep(stage, apiserver, file); err != nil {
		return fmt.Errorf("copy of the file: %w", err)
	}
	return nil
}

// earlier is the file of a stage before the present one: a copy tells it, or a file that
// still has the old provider.
func (r *stages) earlier(ctx context.Context, apiserver string, to rotation.Stage, hash string) ([]byte, error) {
	for _, stage := range rotation.Stages { // the files of two may be one
		if kept := r.copies.read(stage, apiserver); hashed.Name(kept) == hash {
			return kept, nil
		}
	}
	first := r.copies.read(rotation.Before, apiserver)
	if next, err := edit.Advance(first, rotation.Before, to, r.changes(apiserver)...); err == nil && hashed.Name(next) == hash {
		return next, nil
	}
	for _, other := range slices.Sorted(maps.Keys(r.hashes)) {
		file, err := r.files.Read(ctx, other)
		if err != nil {
			continue
		}
		before, err := beforeOf(file, r.changes(other))
		if err != nil {
			continue
		}
		next, err := edit.Advance(before, rotation.Before, to, r.changes(apiserver)...)
		if err == nil && hashed.Name(next) == hash {
			return next, nil
		}
	}
	mend := map[rotation.Stage]string{rotation.Swapped: "put the old provider back, behind the new one", rotation.Added: "put the old provider back, in front of the new one",
		rotation.Before: "take the new provider out"}
	return nil, fmt.Errorf("the file has to be that of stage %q once more, and neither a copy in the folder --state "+
		"nor the file of another apiserver tells how it was: %s", to, mend[to])
}

// lookAfter is for how long a file is looked at when the write was cut off.
const lookAfter = 10 * time.Second

// write replaces a file, and sees what became of it: a program may be cut off,
// or say that it wrote what it did not.
func (r *stages) write(ctx context.Context, apiserver string, to rotation.Stage, was, next []byte) error {
	switch r.files.(type) {
	case LocalFiles, SSHFiles: // which are replaced in one step
	default:
		if err := r.begin(apiserver, next); err != nil {
			return fmt.Errorf("note that the write begins: %w", err)
		}
	}
	err := r.files.Write(ctx, apiserver, was, next)
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lookAfter)
		defer cancel()
	}
	is, unread := r.files.Read(ctx, apiserver)
	whole := slices.Contains(r.hashes[apiserver], hashed.Name(is))
	switch {
	case unread != nil:
		return errors.Join(err, fmt.Errorf("what the write left cannot be read: %w: see that it is whole, or %s", unread, r.instead(apiserver, to)))
	case whole && bytes.Equal(is, next):
		return errors.Join(err, r.end(apiserver))
	case err != nil && !whole && !bytes.HasPrefix(next, is):
		return errors.Join(err, r.foreign(apiserver, to, is), r.end(apiserver))
	case !whole || !bytes.Equal(is, was):
		return errors.Join(err, fmt.Errorf("the write left the file neither as it was nor as it was to be: %s", r.instead(apiserver, to)))
	case err == nil:
		return fmt.Errorf("the file is as it was before, although it was written without an error: %s", r.instead(apiserver, to))
	}
	return errors.Join(err, r.end(apiserver))
}
