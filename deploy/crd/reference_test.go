package crd_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/deploy/crd"
	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the reference in docs/managed.md again")

const page = "../../docs/managed.md"

// definition is as much of a CustomResourceDefinition as the reference shows.
type definition struct {
	Spec struct {
		Versions []struct {
			Schema struct {
				OpenAPIV3Schema property `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

type property struct {
	Type                 string              `json:"type"`
	Description          string              `json:"description"`
	Format               string              `json:"format"`
	Default              any                 `json:"default"`
	Enum                 []string            `json:"enum"`
	Required             []string            `json:"required"`
	MinLength            int                 `json:"minLength"`
	MaxLength            int                 `json:"maxLength"`
	MinItems             int                 `json:"minItems"`
	MaxItems             int                 `json:"maxItems"`
	MaxProperties        int                 `json:"maxProperties"`
	Minimum              *float64            `json:"minimum"`
	Maximum              *float64            `json:"maximum"`
	Properties           map[string]property `json:"properties"`
	Items                *property           `json:"items"`
	AdditionalProperties *property           `json:"additionalProperties"`
}

func TestTheReferenceIsThatOfTheDefinitions(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	want := string(text)
	for name, parts := range map[string][]string{
		"encryptionatrests": {"spec", "status"},
		"vaultkmsconfigs":   {"status"}, // its spec is that of the others
	} {
		schema := schemaOf(t, name)
		for _, part := range parts {
			want = replaced(t, want, name+" "+part, reference(schema.Properties[part]))
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
	}
	require.Equal(t, want, string(text), "go test ./deploy/crd -update writes it again")
}

var block = regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```\n")

func TestTheObjectsOfThePageAreValid(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	blocks := block.FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 2)
	for _, b := range blocks {
		object := v1alpha1.EncryptionAtRest{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SingletonName}}
		require.NoError(t, yaml.UnmarshalStrict([]byte(b[1]), &object))
		object.Default()
		require.Empty(t, object.Validate())
	}
}

func schemaOf(t *testing.T, resource string) property {
	t.Helper()
	text, err := crd.Files.ReadFile("encryption.kube-atrest.io_" + resource + ".yaml")
	require.NoError(t, err)
	var d definition
	require.NoError(t, yaml.Unmarshal(text, &d))
	require.Len(t, d.Spec.Versions, 1)
	return d.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// replaced is a page with other text between the two comments that name a reference.
func replaced(t *testing.T, page, name, text string) string {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	before, rest, found := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	require.True(t, found && ended, "no place for %s", name)
	return before + begin + text + end + after
}

// reference is a table of what is below a property.
func reference(p property) string {
	var b strings.Builder
	b.WriteString("| field | takes | what it says |\n|---|---|---|\n")
	rows(&b, "", p)
	return b.String()
}

func rows(b *strings.Builder, above string, p property) {
	for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
		below := p.Properties[name]
		required := ""
		if slices.Contains(p.Required, name) {
			required = "required; "
		}
		_, text, _ := strings.Cut(strings.Join(strings.Fields(below.Description), " "), " ") // its first word is its name
		fmt.Fprintf(b, "| `%s%s` | %s%s | %s |\n", above, name, required, takes(below), strings.ReplaceAll(text, "|", `\|`))
		rows(b, above+name+".", below)
		if below.Items != nil && name != "conditions" { // which are those of every Kubernetes object
			rows(b, above+name+"[].", *below.Items)
		}
	}
}

// takes is what may be given for a property.
func takes(p property) string {
	text := p.Type
	switch {
	case len(p.Enum) > 0:
		text = "`" + strings.Join(p.Enum, "`, `") + "`"
		text = strings.Replace(text, "``", "empty", 1)
	case p.Format == "date-time":
		text = "time"
	case p.Type == "string":
		text = "text" + ofLength(p.MinLength, p.MaxLength, "characters")
	case p.Type == "array":
		text = "list" + ofLength(p.MinItems, p.MaxItems, "items")
	case p.AdditionalProperties != nil:
		text = fmt.Sprintf("map of at most %d", p.MaxProperties)
	case p.Minimum != nil && p.Maximum != nil:
		text = fmt.Sprintf("%.0f to %.0f", *p.Minimum, *p.Maximum)
	case p.Minimum != nil:
		text = fmt.Sprintf("%s from %.0f on", p.Type, *p.Minimum)
	}
	if p.Default != nil {
		text += fmt.Sprintf("; default `%v`", p.Default)
	}
	return text
}

func ofLength(least, most int, of string) string {
	if least > 0 {
		return fmt.Sprintf(" of %d to %d %s", least, most, of)
	}
	return fmt.Sprintf(" of at most %d %s", most, of)
}
