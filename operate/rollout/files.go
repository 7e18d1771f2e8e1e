package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

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

// Placeholder stands for the name of an apiserver, and for the host if that is HOST:PORT.
const Placeholder = "{apiserver}"

// Fill puts an apiserver into a text in the place of the placeholder.
func Fill(text, apiserver string) string {
	if host, port, err := net.SplitHostPort(apiserver); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err == nil && host != "" {
			apiserver = host
		}
	}
	return strings.ReplaceAll(text, Placeholder, apiserver)
}

// LocalFiles are files that are reached from here. The path may have the
// placeholder in it; without it the apiservers share one file.
type LocalFiles struct{ Path string }

const byHook = "have --config-hook do it"

// Check makes and removes an empty file beside the one that is to be replaced.
func (f LocalFiles) Check(_ context.Context, apiserver string) error {
	return wholefile.CanExchange(f.At(apiserver), byHook)
}

// Read reads a byte more than a configuration may have at most. A mount that hangs holds it
// up for some seconds.
func (f LocalFiles) Read(ctx context.Context, apiserver string) ([]byte, error) {
	within, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	select {
	case file := <-f.read(apiserver):
		return file.content, file.err
	case <-within.Done():
		return nil, f.noAnswer(ctx, apiserver)
	}
}

// fileTimeout is how long a file on the disk may take to be read, or all at once.
const fileTimeout = 3 * time.Second

// noAnswer is the error of a file that was not read in time, unless ctx ended before.
func (f LocalFiles) noAnswer(ctx context.Context, apiserver string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%s does not answer: see to the mount", f.At(apiserver))
}

// localFile is what came of reading one.
type localFile struct {
	content []byte
	err     error
}

// read reads a file on its own, as nothing ends it where a mount hangs.
func (f LocalFiles) read(apiserver string) <-chan localFile {
	done := make(chan localFile, 1)
	go func() {
		content, err := readFile(f.At(apiserver))
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %s", err, f.reach())
		}
		done <- localFile{content, err}
	}()
	return done
}

// Create makes the file of an apiserver that has none, which only its owner reads. If
// there is one, it stays, and the error wraps [fs.ErrExist].
func (f LocalFiles) Create(_ context.Context, apiserver string, content []byte) error {
	err := wholefile.Create(f.At(apiserver), content)
	if errors.Is(err, fs.ErrExist) {
		err = isThere(f.At(apiserver))
	}
	return err
}

// isThere is the error where a file is to be made and one is there.
func isThere(path string) error {
	return fmt.Errorf("%s is there already: atrest rotate --to goes on from it: %w", path, fs.ErrExist)
}

// At is where the file of an apiserver is.
func (f LocalFiles) At(apiserver string) string {
	return Fill(f.Path, apiserver)
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
	bySSH := fmt.Sprintf("have ssh reach them by --config 'ssh://root@%s/PATH', or name a program by --config-hook that does", Placeholder)
	if strings.Contains(f.Path, Placeholder) {
		return "the file of each apiserver has to be there, mounted from its machine; else " + bySSH
	}
	return "it is taken for the file of every apiserver: if each has its own, mount them here and put " + Placeholder + " into --config, or " + bySSH
}

// Write exchanges a file in one step, and leaves it its owner, mode and extended
// attributes.
func (f LocalFiles) Write(_ context.Context, apiserver string, was, content []byte) error {
	return wholefile.Exchange(f.At(apiserver), was, content, byHook)
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
