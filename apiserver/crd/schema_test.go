// Package crd_test holds the CustomResourceDefinitions of deploy/crd to what the API says: by the
// code of an apiserver for them, in this process, and in server by one that runs.
package crd_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/deploy/crd"
	"github.com/kube-atrest/atrest/internal/apicase"
	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
)

// definition is one CustomResourceDefinition, as an apiserver has it in mind.
type definition struct {
	crd        *apiextensions.CustomResourceDefinition
	version    *apiextensions.CustomResourceDefinitionVersion
	structural *schema.Structural
	// validate tries to make an object or, where it has a status, to write that.
	validate func(*unstructured.Unstructured) field.ErrorList
}

// read is all of deploy/crd, by kind.
func read(t *testing.T) map[string]definition {
	t.Helper()
	files, err := crd.Files.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, files, 2)
	all := map[string]definition{}
	for _, file := range files {
		text, err := crd.Files.ReadFile(file.Name())
		require.NoError(t, err)
		d := readOne(t, text)
		all[d.crd.Spec.Names.Kind] = d
	}
	return all
}

func readOne(t *testing.T, text []byte) definition {
	t.Helper()
	var external apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.UnmarshalStrict(text, &external))
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&external)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&external.Spec)
	internal := new(apiextensions.CustomResourceDefinition)
	require.NoError(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&external, internal, nil))
	require.Len(t, internal.Spec.Versions, 1)
	version := &internal.Spec.Versions[0]
	in := version.Schema
	if in == nil {
		in = internal.Spec.Validation // where a conversion puts what all versions have in common
	}
	structural, err := schema.NewStructural(in.OpenAPIV3Schema)
	require.NoError(t, err)
	spec, _, err := validation.NewSchemaValidator(in.OpenAPIV3Schema)
	require.NoError(t, err)
	below := in.OpenAPIV3Schema.Properties["status"]
	status, _, err := validation.NewSchemaValidator(&below)
	require.NoError(t, err)
	kind := v1alpha1.GroupVersion.WithKind(internal.Spec.Names.Kind)
	strategy := customresource.NewStrategy(nil, false, kind, spec, status, structural, nil, nil, nil)
	return definition{internal, version, structural, func(o *unstructured.Unstructured) field.ErrorList {
		if _, ok := o.Object["status"]; !ok {
			return strategy.Validate(t.Context(), o)
		}
		o.SetResourceVersion("1")
		before := o.DeepCopy()
		delete(before.Object, "status")
		return customresource.NewStatusStrategy(strategy).ValidateUpdate(t.Context(), o, before)
	}}
}

// An apiserver refuses a definition whose rules could cost too much.
func TestAnApiserverTakesTheDefinitions(t *testing.T) {
	for kind, d := range read(t) {
		d.crd.Status.StoredVersions = []string{d.version.Name}
		require.Empty(t, apiextensionsvalidation.ValidateCustomResourceDefinition(t.Context(), d.crd), kind)
	}
}

func TestTheDefinitionsRefuseWhatTheCasesSay(t *testing.T) {
	all := read(t)
	for _, c := range apicase.Load(t) {
		t.Run(c.Name, func(t *testing.T) {
			object := c.Object(t)
			d := all[object["kind"].(string)]
			unknown := pruning.PruneWithOptions(object, d.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
			require.ElementsMatch(t, c.Unknown, unknown)
			defaulting.Default(object, d.structural)
			want, _ := c.Want()
			errs := d.validate(&unstructured.Unstructured{Object: object})
			require.Equal(t, want, apicase.Told(errs))
			var fields, messages []string // as in an answer
			for _, err := range errs {
				fields, messages = append(fields, err.Field), append(messages, err.ErrorBody())
			}
			require.Equal(t, want, apicase.ToldBy(fields, messages))
		})
	}
}

// What Go sets by itself is what an apiserver sets.
func TestTheDefaultsOfGoAreThoseOfTheDefinition(t *testing.T) {
	d := read(t)["EncryptionAtRest"]
	for _, c := range apicase.Load(t) {
		if len(c.Errors) > 0 || c.Served || c.Base == "vaultKMSConfig" {
			continue
		}
		served, inGo := c.Object(t), new(v1alpha1.EncryptionAtRest)
		text, err := json.Marshal(served)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, inGo))
		inGo.Default()
		pruning.Prune(served, d.structural, true)
		defaulting.Default(served, d.structural)
		var decoded v1alpha1.EncryptionAtRest
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(served, &decoded))
		require.Equal(t, decoded, *inGo, c.Name)
	}
}

// kubectl explain shows them.
func TestEveryFieldIsExplained(t *testing.T) {
	for kind, d := range read(t) {
		explained(t, kind, d.structural)
	}
}

func explained(t *testing.T, at string, s *schema.Structural) {
	t.Helper()
	for name, below := range s.Properties {
		if strings.Contains("apiVersion kind metadata", name) && !strings.Contains(at, ".") {
			continue
		}
		require.NotEmpty(t, below.Description, "%s.%s", at, name)
		explained(t, at+"."+name, &below)
	}
	if s.Items != nil {
		explained(t, at+"[]", s.Items)
	}
}

// Of every text and every list it is known how long it may be.
func TestEverythingHasABound(t *testing.T) {
	for kind, d := range read(t) {
		bounded(t, kind, d.structural)
	}
}

func bounded(t *testing.T, at string, s *schema.Structural) {
	t.Helper()
	v := s.ValueValidation
	switch {
	case s.Type == "string":
		require.True(t, v != nil && (v.MaxLength != nil || len(v.Enum) > 0 || v.Format == "date-time"), at)
	case s.Type == "array":
		require.True(t, v != nil && v.MaxItems != nil, at)
		bounded(t, at+"[]", s.Items)
	case s.AdditionalProperties != nil:
		require.True(t, v != nil && v.MaxProperties != nil, at)
		bounded(t, at+"{}", s.AdditionalProperties.Structural)
	}
	for name, below := range s.Properties {
		if strings.Contains("apiVersion kind metadata", name) && !strings.Contains(at, ".") {
			continue
		}
		bounded(t, at+"."+name, &below)
	}
}

// etcd takes 1.5 MiB of an object; what is left is for the field owners of the nodes.
func TestNoObjectIsTooLargeForEtcd(t *testing.T) {
	for kind, d := range read(t) {
		size := largest(d.structural)
		t.Logf("%s: %d bytes", kind, size)
		require.Less(t, size, 1<<20, kind)
	}
}

// longestMessage is that of a condition by the rule of their list, in place of what
// Kubernetes allows one.
const longestMessage = 1024

// largest is the length of the longest JSON that fits a schema, in characters of one byte.
func largest(s *schema.Structural) int {
	v, size := s.ValueValidation, len(`{},`)
	switch {
	case s.Type == "string" && v.MaxLength != nil:
		return len(`"",`) + min(int(*v.MaxLength), 32768)
	case s.Type == "string" && v.Format == "date-time":
		return len(`"2006-01-02T15:04:05Z",`)
	case s.Type == "array":
		return size + int(*v.MaxItems)*largest(s.Items)
	case s.AdditionalProperties != nil:
		const key = 253 + len(`/""`) + 63
		return size + int(*v.MaxProperties)*(key+largest(s.AdditionalProperties.Structural))
	case s.Type != "object":
		return 32 // an enum, a number, a bool
	}
	for name, below := range s.Properties {
		n := largest(&below)
		if v := below.ValueValidation; v != nil && v.MaxLength != nil && *v.MaxLength == 32768 {
			n = longestMessage
		}
		size += len(`"":,`) + len(name) + n
	}
	return size
}

// Whoever adds a rule adds a case that it refuses.
func TestEveryRuleRefusesACase(t *testing.T) {
	var told strings.Builder
	for _, c := range apicase.Load(t) {
		told.WriteString(strings.Join(c.Errors, "\n") + "\n")
	}
	for kind, d := range read(t) {
		rules(t, kind, d.structural, told.String())
	}
}

func rules(t *testing.T, at string, s *schema.Structural, told string) {
	t.Helper()
	for _, rule := range s.XValidations {
		require.True(t, strings.Contains(told, ": "+rule.Message+"\n"), "%s: no case has %q", at, rule.Message)
	}
	for name, below := range s.Properties {
		rules(t, at+"."+name, &below, told)
	}
	if s.Items != nil {
		rules(t, at+"[]", s.Items, told)
	}
}
