package vault

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/kmsplugin"
)

// maxSecret bounds what is read of a file with a secret, and maxBundle of one with certificates, in
// bytes: that of a system's CAs has some 200 KiB.
const maxSecret, maxBundle = 64 << 10, 4 << 20

// A secret is a token, a secret-id or a JWT. It is behind a pointer wherever it is kept, and
// printed by no verb.
type secret struct {
	redact.As
	text string
}

func newSecret(text string) *secret { return &secret{As: "a secret", text: text} }

// readSecret reads what a file has, without the space around it.
func readSecret(what, path string) (*secret, error) {
	content, err := readFile(what, path, maxSecret)
	if err != nil {
		return nil, err
	}
	defer clear(content)
	text := string(bytes.TrimSpace(content))
	switch {
	case text == "":
		return nil, fmt.Errorf("%w: the %s file %s is empty: write it again", kmsplugin.ErrDenied, what, path)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, fmt.Errorf("%w: the %s file %s has more than one word, or what is no text: it has to hold nothing else", kmsplugin.ErrDenied, what, path)
	}
	return newSecret(text), nil
}

// readFile reads a whole file that is one, and has at most so many bytes.
func readFile(what, path string, most int) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: the %s file %s is no file: it is %s", kmsplugin.ErrDenied, what, path, info.Mode().Type())
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: the %s file: %w: put it there, and let the user of this process read it", kmsplugin.ErrDenied, what, err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, int64(most)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the %s file: %w", kmsplugin.ErrDenied, what, err)
	case len(content) > most:
		return nil, fmt.Errorf("%w: the %s file %s has more than %d bytes: it is another file", kmsplugin.ErrDenied, what, path, most)
	}
	return content, nil
}
