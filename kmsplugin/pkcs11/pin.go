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
	"sync"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// maxPIN is far more than any token takes.
const maxPIN = 1024

// readPIN reads the PIN. It is in no error.
func readPIN(path string) (string, error) {
	file, err := os.Open(path)
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
		return "", pinMistake(path, fmt.Sprintf("its mode %04o lets others in: chmod 600 %s, and change the PIN if others may have read it", info.Mode().Perm(), path))
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
	return fmt.Errorf("%w: %w: PIN file %s: %s", kmsplugin.ErrDenied, ErrMistake, path, what)
}

// pins remembers which PIN the token has refused. A token locks after some three wrong ones, so
// that none is tried twice, whatever is done to its file.
type pins struct {
	mu      sync.Mutex
	refused [sha256.Size]byte
}

func (p *pins) isRefused(pin string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused == sha256.Sum256([]byte(pin))
}

func (p *pins) refuse(pin string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = sha256.Sum256([]byte(pin))
}
