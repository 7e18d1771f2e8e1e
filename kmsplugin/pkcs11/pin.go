//go:build cgo

package pkcs11

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// maxPIN is far more than any token takes.
const maxPIN = 1024

// readPIN reads the PIN. It is in no error.
func readPIN(path string) (string, error) {
	// Without O_NONBLOCK a pipe in the file's place would block for ever.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", pinMistake(path, "it does not exist: write the PIN of the token's user there, with mode 0600")
	}
	if err != nil {
		return "", pinMistake(path, fmt.Sprintf("%s: let the user read it that this runs as", errors.Unwrap(err)))
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return "", pinMistake(path, err.Error())
	case !info.Mode().IsRegular():
		return "", pinMistake(path, fmt.Sprintf("it is no regular file (%s)", info.Mode()))
	case info.Mode().Perm()&0o027 != 0: // the group may read it, as it does of a volume with an fsGroup
		return "", pinMistake(path, fmt.Sprintf("its mode %04o lets others in: chmod 600 %s, and change the PIN if others may have read it", info.Mode().Perm(), shown(path)))
	}
	content, err := io.ReadAll(io.LimitReader(file, maxPIN+1))
	if err != nil {
		return "", pinMistake(path, err.Error())
	}
	content = bytes.TrimRight(content, "\r\n")
	if len(content) == 0 || len(content) > maxPIN || bytes.ContainsAny(content, "\x00\n") {
		return "", pinMistake(path, "it has to hold one line, the PIN")
	}
	return string(content), nil
}

func pinMistake(path, what string) error {
	return fmt.Errorf("%w: %w: PIN file %s: %s", kmsplugin.ErrDenied, ErrMistake, shown(path), what)
}

// pins remembers, by their hashes, which PINs the token has refused. A token locks after some
// three wrong ones, so that none is tried twice, whatever is done to its file, but for one that has worked. It
// is safe for concurrent use.
type pins struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]attempt
}

// attempt is how a PIN was answered.
type attempt struct {
	worked bool
	answer string    // what the token said to it, if it did not
	next   time.Time // when it is tried again, zero if it is not
	pause  time.Duration
}

// last is the last attempt with a PIN.
func (p *pins) last(pin string) attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[sha256.Sum256([]byte(pin))]
}

// worked is for a PIN that is right. When the token next answers it with something that may mean
// anything, it is tried again.
func (p *pins) worked(pin string) { p.set(pin, attempt{worked: true}) }

// failed is for a PIN that the token did not take, and tells when it is tried again, or the zero time.
func (p *pins) failed(pin, answer string, inDoubt bool, now time.Time) time.Time {
	a := attempt{answer: answer}
	if last := p.last(pin); inDoubt && last.worked {
		a.worked, a.pause = true, lame.longer(last.pause)
		a.next = now.Add(a.pause)
	}
	p.set(pin, a)
	return a.next
}

func (p *pins) set(pin string, a attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[[sha256.Size]byte]attempt{}
	}
	p.all[sha256.Sum256([]byte(pin))] = a
}

// shown is a path for an error, unless it may be the PIN itself, which somebody gave in its place.
func shown(path string) string {
	if !strings.Contains(path, "/") {
		return "(not shown, as it is no path with a folder, and may be the PIN itself)"
	}
	return path
}
