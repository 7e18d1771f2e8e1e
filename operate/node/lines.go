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
	// maxLog is from which size on the log of a plugin is begun anew, in bytes, and maxFile what it
	// has at most while no node runs that does so, as has any file that a plugin writes.
	maxLog  = 1 << 20
	maxFile = 64 << 20
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
	skips        bool   // that what comes is of a line of which no more is told
	last         string // line that was passed on
}

// linesOf are those of an instance.
func linesOf(s Spec) *lines {
	return &lines{path: filepath.Join(s.Folder, logName), prefix: "kms-" + s.KeyID + " " + s.Instance + ": "}
}

// passOn gives what is new to log. What of its credentials the plugin writes is not passed on.
func (l *lines) passOn(secrets secrets, log func(string)) error {
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
	if more := info.Size() - l.at; more > maxLog { // it writes faster than anybody reads
		log(fmt.Sprintf("%s%d bytes are left out", l.prefix, more))
		l.at, l.rest, l.skips = 0, nil, true
		return file.Truncate(0)
	}
	text := make([]byte, maxRead)
	n, err := file.ReadAt(text, l.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	l.at += int64(n)
	l.tell(text[:n], secrets, log)
	if l.at < maxLog || l.at < info.Size() {
		return nil
	}
	l.at = 0
	return file.Truncate(0) // who appends begins at 0 then
}

// after is what comes after a line of which no more is told: its middle may be the end of a
// credential, by which nobody would know it.
func (l *lines) after(text []byte) []byte {
	if !l.skips {
		return text
	}
	_, text, ended := bytes.Cut(text, []byte("\n"))
	l.skips = !ended
	return text
}

func (l *lines) tell(text []byte, secrets secrets, log func(string)) {
	text = append(l.rest, l.after(text)...)
	l.rest = nil
	left := 0
	for n := 0; len(text) > 0; n++ {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		if !ended && len(line) < maxRead {
			l.rest = bytes.Clone(line)
			break
		}
		text, l.skips = rest, !ended
		if n >= maxLines {
			left++
			continue
		}
		l.last = secrets.shown(line)
		log(l.prefix + l.last)
	}
	if left > 0 {
		log(fmt.Sprintf("%s%d lines are left out", l.prefix, left))
	}
}

// shown is a line as it may be shown.
func (s secrets) shown(line []byte) string {
	for _, secret := range s {
		line = bytes.ReplaceAll(line, secret, []byte("(credential)"))
	}
	text := strings.ToValidUTF8(string(line[:min(len(line), maxLine)]), "?")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
