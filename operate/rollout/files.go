package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/wholefile"
)

// Files are the configuration files of apiservers, by the apiserver's name.
type Files interface {
	// Check tells why a file could not be read or replaced, as far as that can be
	// known while it stays as it is.
	Check(ctx context.Context, apiserver string) error
	Read(ctx context.Context, apiserver string) ([]byte, error)
	// Write replaces a file as a whole, if it is as it was. The error wraps
	// [wholefile.ErrChanged] if it is known to be another.
	Write(ctx context.Context, apiserver string, was, content []byte) error
}

// Placeholder stands for the name of an apiserver.
const Placeholder = "{apiserver}"

// LocalFiles are files that are reached from here. The path may have the
// placeholder in it; without it the apiservers share one file.
type LocalFiles struct{ Path string }

func (f LocalFiles) at(apiserver string) string {
	return strings.ReplaceAll(f.Path, Placeholder, apiserver)
}

const byHook = "have --config-hook do it"

// Check makes and removes an empty file beside the one that is to be replaced.
func (f LocalFiles) Check(_ context.Context, apiserver string) error {
	return wholefile.CanExchange(f.at(apiserver), byHook)
}

// Read reads a byte more than a configuration may have at most.
func (f LocalFiles) Read(_ context.Context, apiserver string) ([]byte, error) {
	content, err := readFile(f.at(apiserver))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %s", err, f.reach())
	}
	return content, err
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, config.MaxSize+1))
}

// reach is what to do about a file that is somewhere else.
func (f LocalFiles) reach() string {
	if strings.Contains(f.Path, Placeholder) {
		return "have the file of each apiserver there, mounted from its machine, or name a program by --config-hook that reaches it"
	}
	return "it is taken for the file of every apiserver: if each has its own, mount them here and put " + Placeholder +
		" into --config, or name a program by --config-hook that reaches them"
}

// Write exchanges a file in one step, and leaves it its owner, mode and extended
// attributes.
func (f LocalFiles) Write(_ context.Context, apiserver string, was, content []byte) error {
	return wholefile.Exchange(f.at(apiserver), was, content, byHook)
}

// notInEffect is the error for a file of which an apiserver has another one in
// effect, by their hashes.
func notInEffect(files Files, apiserver, file, effect string) error {
	what := "see why the apiserver does not take it into use, and that it is the file of this apiserver"
	if local, ok := files.(LocalFiles); ok {
		what = local.reach()
	}
	return fmt.Errorf("the file has hash %s, and %s has one with hash %s in effect: %s", file, apiserver, effect, what)
}
