// Package apicase reads the cases that hold the API of operate/api to what it says: objects,
// and what is wrong with each. They are data, so that whoever refuses an object is held to
// the same ones: Go, the CustomResourceDefinition, and a kube-apiserver that has it.
//
// It is for tests alone.
package apicase

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Case is an object, and what is wrong with it.
type Case struct {
	// Name is unique, and File is where it stands.
	Name string `json:"name"`
	File string `json:"-"`
	// Base names an object of base.yaml, and Patch is a merge patch of what is at At in it.
	// $(TEXT*N) in a text of it is N times TEXT.
	Base  string         `json:"base"`
	At    string         `json:"at"`
	Patch map[string]any `json:"patch"`
	// Errors are those that it has, in any order, as [Told] makes them; without any it is
	// accepted. Go are those in Go, where a value cannot tell what JSON does, and Why is why.
	Errors []string  `json:"errors"`
	Go     *[]string `json:"go"`
	Why    string    `json:"why"`
	// Unknown are the fields that there are not, for who decodes strictly.
	Unknown []string `json:"unknown"`
	// Served is a case of what only an apiserver looks at, such as a status.
	Served bool `json:"served"`

	base map[string]any
}

//go:embed testdata
var testdata embed.FS

// Load reads the cases.
func Load(t *testing.T) []Case {
	t.Helper()
	var bases map[string]map[string]any
	read(t, "testdata/base.yaml", &bases)
	files, err := fs.Glob(testdata, "testdata/cases_*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []Case
	names := map[string]bool{}
	for _, file := range files {
		var cases []Case
		read(t, file, &cases)
		for _, c := range cases {
			require.Contains(t, bases, c.Base, "%s: %s", file, c.Name)
			require.False(t, names[c.Name], "%s: %s is there twice", file, c.Name)
			require.Equal(t, c.Go != nil, c.Why != "", "%s: %s: say why Go differs", file, c.Name)
			names[c.Name] = true
			c.File, c.base = path.Base(file), bases[c.Base]
			all = append(all, c)
		}
	}
	return all
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := testdata.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, into), file)
}

// Object is that of the case, the caller's own.
func (c Case) Object(t *testing.T) map[string]any {
	t.Helper()
	object, err := copied(c.base)
	require.NoError(t, err)
	at := object
	for name := range strings.SplitSeq(c.At, ".") {
		if name == "" {
			continue
		}
		below, ok := at[name].(map[string]any)
		require.True(t, ok, "%s: there is no %s", c.Name, c.At)
		at = below
	}
	merge(at, repeated(c.Patch).(map[string]any))
	object, err = copied(object)
	require.NoError(t, err)
	return object
}

// copied has whole numbers as int64, as an apiserver does.
func copied(object map[string]any) (into map[string]any, err error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	err = utiljson.Unmarshal(text, &into)
	return into, err
}

// merge is RFC 7396.
func merge(into, patch map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		below, isObject := patch[name].(map[string]any)
		switch {
		case patch[name] == nil:
			delete(into, name)
		case isObject:
			target, ok := into[name].(map[string]any)
			if !ok {
				target = map[string]any{}
			}
			merge(target, below)
			into[name] = target
		default:
			into[name] = patch[name]
		}
	}
}

var times = regexp.MustCompile(`\$\(([^()]+)\*(\d+)\)`)

// repeated is a value in which $(TEXT*N) stands for N times TEXT.
func repeated(value any) any {
	switch value := value.(type) {
	case string:
		return times.ReplaceAllStringFunc(value, func(s string) string {
			m := times.FindStringSubmatch(s)
			n, _ := strconv.Atoi(m[2]) // which are digits
			return strings.Repeat(m[1], n)
		})
	case []any:
		all := make([]any, 0, len(value))
		for _, item := range value {
			all = append(all, repeated(item))
		}
		return all
	case map[string]any:
		all := map[string]any{}
		for name, below := range value {
			all[name] = repeated(below)
		}
		return all
	}
	return value
}

// unchecked is what an apiserver adds, to say that there may be more.
const unchecked = "some validation rules were not checked"

// Told are errors on a line each, sorted: the field, the kind of error and what is told, but
// not the value, and nothing of rules that were not looked at.
func Told(errs field.ErrorList) []string {
	all := []string{}
	for _, e := range errs {
		if !strings.HasPrefix(e.Detail, unchecked) {
			all = append(all, line(e.Field, e.Type.String(), e.Detail))
		}
	}
	slices.Sort(all)
	return all
}

// ToldBy are the same of an answer of an apiserver: fields and messages.
func ToldBy(fields, messages []string) []string {
	all := []string{}
	for i, message := range messages {
		kind, detail := parted(message)
		if !strings.HasPrefix(detail, unchecked) {
			all = append(all, line(fields[i], kind, detail))
		}
	}
	slices.Sort(all)
	return all
}

// parted is the kind of error and what is told, of KIND: VALUE: DETAIL, where the value is
// left out of some kinds, and is a text as Go quotes it or JSON.
func parted(message string) (kind, detail string) {
	kind, rest, _ := strings.Cut(message, ": ")
	for _, valueless := range []field.ErrorType{field.ErrorTypeRequired, field.ErrorTypeForbidden, field.ErrorTypeTooLong} {
		if kind == valueless.String() {
			return kind, rest
		}
	}
	value, err := strconv.QuotedPrefix(rest)
	if err != nil {
		decoder := json.NewDecoder(strings.NewReader(rest))
		if decoder.Decode(new(any)) == nil {
			value = rest[:decoder.InputOffset()]
		}
	}
	return kind, strings.TrimPrefix(rest[len(value):], ": ")
}

func line(at, kind, detail string) string {
	if at == "<nil>" {
		at = "object"
	}
	if detail == "" {
		return fmt.Sprintf("%s: %s", at, kind)
	}
	return fmt.Sprintf("%s: %s: %s", at, kind, detail)
}

// Want are the errors that a case has, and those in Go.
func (c Case) Want() (served, inGo []string) {
	served = append([]string{}, c.Errors...)
	slices.Sort(served)
	if c.Go == nil {
		return served, served
	}
	inGo = append([]string{}, *c.Go...)
	slices.Sort(inGo)
	return served, inGo
}
