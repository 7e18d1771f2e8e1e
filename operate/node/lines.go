package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// Bounds of what is passed on of a plugin's log.
const (
	// maxLog is from which size on the log of a plugin is begun anew, in bytes.
	maxLog = 1 << 20
	// maxRead is what is read of it in one round, in bytes.
	maxRead = 64 << 10
	// maxLine and maxLines bound one line, in bytes, and those of one round.
	maxLine  = 1 << 10
	maxLines = 100
)

// lines passes on what one plugin logs, line by line: with a prefix, without what steers a
// terminal, and without its credentials.
type lines struct {
	path, prefix string
	at           int64
	rest         []byte // of a line that has not ended
	last         string // line that was passed on
}

// linesOf are those of an instance.
func linesOf(s Spec) *lines {
	return &lines{path: filepath.Join(s.Folder, logName), prefix: "kms-" + s.KeyID + " " + s.Instance + ": "}
}

// passOn gives what is new to log. secrets are never passed on, whatever the plugin writes.
func (l *lines) passOn(secrets [][]byte, log func(string)) error {
	file, err := os.OpenFile(l.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < l.at {
		l.at = 0
	}
	text := make([]byte, maxRead)
	n, err := file.ReadAt(text, l.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	l.at += int64(n)
	l.tell(text[:n], secrets, log)
	if l.at < maxLog {
		return nil
	}
	l.at = 0
	return file.Truncate(0) // who appends begins at 0 then
}

func (l *lines) tell(text []byte, secrets [][]byte, log func(string)) {
	text = append(l.rest, text...)
	l.rest = nil
	left := 0
	for n := 0; len(text) > 0; n++ {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		if !ended && len(line) < maxRead {
			l.rest = bytes.Clone(line)
			break
		}
		text = rest
		if n >= maxLines {
			left++
			continue
		}
		l.last = shown(line, secrets)
		log(l.prefix + l.last)
	}
	if left > 0 {
		log(fmt.Sprintf("%s%d lines are left out", l.prefix, left))
	}
}

// shown is a line as it may be shown.
func shown(line []byte, secrets [][]byte) string {
	for _, secret := range secrets {
		for _, s := range [][]byte{secret, bytes.TrimSpace(secret)} {
			if len(s) >= minSecret {
				line = bytes.ReplaceAll(line, s, []byte("(credential)"))
			}
		}
	}
	text := strings.ToValidUTF8(string(line[:min(len(line), maxLine)]), "?")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// minSecret is from which length on a credential is looked for in a log: shorter ones are in
// every text.
const minSecret = 4
