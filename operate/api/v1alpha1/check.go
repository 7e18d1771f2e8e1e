package v1alpha1

import (
	"fmt"
	"regexp"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checker gathers what is wrong, as an apiserver does: what does not fit the schema, and
// what breaks a rule. It repeats no value that people wrote but that of an enum, as somebody
// may have put a credential there.
type checker struct{ schema, rules field.ErrorList }

// errors are what an apiserver would tell. It looks at no rule while the schema has an error
// of a kind that could mislead one.
func (c *checker) errors() field.ErrorList {
	misleads := []field.ErrorType{field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany}
	if slices.ContainsFunc(c.schema, func(e *field.Error) bool { return slices.Contains(misleads, e.Type) }) {
		return c.schema
	}
	return slices.Concat(c.schema, c.rules)
}

// misfit notes what does not fit the schema.
func (c *checker) misfit(at *field.Path, format string, args ...any) {
	c.schema = append(c.schema, field.Invalid(at, field.OmitValueType{}, fmt.Sprintf("%s in body should ", at)+fmt.Sprintf(format, args...)))
}

// rule notes a rule that does not hold.
func (c *checker) rule(at *field.Path, holds bool, message string) {
	if !holds {
		c.rules = append(c.rules, field.Invalid(at, field.OmitValueType{}, message))
	}
}

// required notes what has to be there and is not. It reports whether it is.
func (c *checker) required(at *field.Path, given bool) bool {
	if !given {
		c.schema = append(c.schema, field.Required(at, ""))
	}
	return given
}

// text reports whether there is one, and notes one of less than least characters or of more
// than most.
func (c *checker) text(at *field.Path, value string, least, most int) bool {
	n := utf8.RuneCountInString(value)
	switch {
	case n == 0:
		return false
	case n < least:
		c.misfit(at, "be at least %d chars long", least)
	case n > most:
		c.schema = append(c.schema, field.TooLong(at, "", most))
	}
	return true
}

// one notes a value that is none of an enum.
func one[T ~string](c *checker, at *field.Path, value T, of ...T) {
	if !slices.Contains(of, value) {
		c.schema = append(c.schema, field.NotSupported(at, value, of))
	}
}

// notDNS tells what is no DNS name, as OpenShift does.
func notDNS(what, kind string) string {
	return what + " must be a valid DNS " + kind + ": contain no more than 253 characters, contain only lowercase alphanumeric characters, '-' or '.', and start and end with an alphanumeric character"
}

var (
	dnsName  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	dots     = regexp.MustCompile(`(^|/)[.]{1,2}(/|$)`)
	filePath = regexp.MustCompile(`^(/[ -.0-~]+)+$`)
	aTime    = regexp.MustCompile(`^([0-9]{1,5}(ms|s|m|h)){1,4}$`)
)

// name checks that of an object, which has to be there.
func (c *checker) name(at *field.Path, name string, most int) {
	if c.required(at, c.text(at, name, 1, most)) {
		c.rule(at, dnsName.MatchString(name), notDNS("name", "subdomain name"))
	}
}

// file checks a path on a node, and reports whether it is there.
func (c *checker) file(at *field.Path, path FilePath) bool {
	given := c.text(at, string(path), 2, 1024)
	if given {
		c.rule(at, filePath.MatchString(string(path)) && !dots.MatchString(string(path)),
			"must be the absolute path of a file, of printable ASCII characters, without '.' or '..' path segments")
	}
	return given
}

// label checks what a KMS calls something, and reports whether it is there.
func (c *checker) label(at *field.Path, label Label) bool {
	given := c.text(at, string(label), 1, 256)
	c.rule(at, !hasControl(string(label)), "must not contain control characters")
	return given
}

// duration checks a time that may be left out.
func (c *checker) duration(at *field.Path, text Duration, message string, allowed func(time.Duration) bool) {
	if !c.text(at, string(text), 0, 32) {
		return
	}
	d, err := time.ParseDuration(string(text))
	c.rule(at, aTime.MatchString(string(text)) && err == nil && allowed(d), message)
}

func hasControl(text string) bool {
	for _, r := range text {
		if unicode.Is(unicode.Cc, r) {
			return true
		}
	}
	return false
}
