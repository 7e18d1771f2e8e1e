package bundle

import (
	"fmt"
	"strings"
)

// Error is why something is no bundle: everything found wrong with it. It holds no
// credential.
type Error struct {
	// Problems is never empty.
	Problems []error
}

var _ error = (*Error)(nil)

// maxShown bounds the problems that one message spells out.
const maxShown = 20

// Error is one line.
func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return fmt.Sprintf("the bundle is refused: %v", e.Problems[0])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the bundle is refused: %d problems:", len(e.Problems))
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

// problems are what was found, while more is looked for.
type problems []error

// add notes a problem. Nil is none.
func (p *problems) add(err error) {
	if err != nil {
		*p = append(*p, err)
	}
}

// addf notes one in words.
func (p *problems) addf(format string, args ...any) { p.add(fmt.Errorf(format, args...)) }

// err is nil where nothing was found.
func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &Error{Problems: p}
}

// several are errors on one line.
type several []error

// join is nil where all are.
func join(errs ...error) error {
	var s several
	for _, err := range errs {
		if err != nil {
			s = append(s, err)
		}
	}
	if len(s) == 0 {
		return nil
	}
	return s
}

func (s several) Error() string {
	texts := make([]string, 0, maxShown)
	for _, err := range s[:min(len(s), maxShown)] {
		texts = append(texts, err.Error())
	}
	if more := len(s) - maxShown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

func (s several) Unwrap() []error { return s }
