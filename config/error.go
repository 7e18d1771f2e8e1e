package config

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Error is why a file cannot be used: everything found wrong with it. Problems
// of a field are [*field.Error] of k8s.io/apimachinery, with path and type.
type Error struct {
	// File is [Options.File].
	File string
	// Problems is never empty.
	Problems []error
}

var _ error = (*Error)(nil)

func refuse(o Options, problems ...error) *Error {
	return &Error{File: o.File, Problems: problems}
}

// maxShown bounds the problems that one message spells out, so that a file of
// thousands of mistakes does not fill the log.
const maxShown = 20

// Error is one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("encryption provider configuration file")
	if e.File != "" {
		fmt.Fprintf(&b, " %q", e.File)
	}
	if len(e.Problems) == 1 {
		fmt.Fprintf(&b, ": %v", e.Problems[0])
		return b.String()
	}
	fmt.Fprintf(&b, ": %d problems:", len(e.Problems))
	for i, problem := range e.Problems[:min(len(e.Problems), maxShown)] {
		fmt.Fprintf(&b, " (%d) %v", i+1, problem)
	}
	if more := len(e.Problems) - maxShown; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// Unwrap gives the problems to errors.Is and errors.As.
func (e *Error) Unwrap() []error { return e.Problems }

const (
	// maxValue bounds the bytes of a value of the file within a message.
	maxValue = 128
	// maxText bounds the bytes of another package's message within ours.
	maxText = 512
)

// shorten cuts s to at most limit bytes and three dots, between characters.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}
