package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
)

// expected is the remedy for a file of another kind or version.
const expected = "write kind: EncryptionConfiguration and apiVersion: apiserver.config.k8s.io/v1"

var decoder = newDecoder()

// newDecoder reads the versioned forms strictly, sets kube-apiserver's defaults
// (timeout 3s, apiVersion v1, cachesize 1000 for v1) and converts to the
// internal form.
func newDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(apiserver.AddToScheme(scheme))
	utilruntime.Must(apiserverv1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
}

// decode gives the file's content, or nil if there is none to speak of. A
// content may come with problems: those that leave a meaning to check.
func decode(data []byte) (*apiserver.EncryptionConfiguration, []error) {
	object, kind, err := decoder.Decode(data, nil, nil)
	problems := decodeProblems(data, err)
	if moreDocuments(data) {
		problems = append(problems, errors.New("more than one YAML document, of which kube-apiserver reads "+
			"the first and ignores the others: keep one"))
	}
	if object == nil {
		return nil, problems
	}
	file, ok := object.(*apiserver.EncryptionConfiguration)
	if !ok || kind.Version == runtime.APIVersionInternal {
		return nil, append(problems, fmt.Errorf("unexpected config type %s: %s", kind, expected))
	}
	return file, problems
}

// decodeProblems puts the decoder's error into words that repeat nothing of the
// file but names: the decoder itself quotes the whole file when the kind is
// missing, and a field name can be a key when the space after "secret:" is.
func decodeProblems(data []byte, err error) []error {
	strict, isStrict := runtime.AsStrictDecodingError(err)
	switch {
	case err == nil:
		return nil
	case runtime.IsMissingKind(err):
		return []error{fmt.Errorf("kind is missing: %s", expected)}
	case runtime.IsMissingVersion(err):
		return []error{fmt.Errorf("apiVersion is missing: %s", expected)}
	case runtime.IsNotRegisteredError(err):
		kind := kindOf(data)
		return []error{fmt.Errorf("cannot be decoded: no kind %q is registered for version %q: %s",
			shorten(kind.Kind, maxValue), shorten(kind.GroupVersion().String(), maxValue), expected)}
	case isStrict:
		problems := make([]error, 0, len(strict.Errors()))
		for _, e := range strict.Errors() {
			problems = append(problems, fmt.Errorf("strict decoding error: %s: check spelling, case and indentation", scrub(e.Error())))
		}
		return problems
	default:
		return []error{fmt.Errorf("cannot be decoded: %s%s", scrub(err.Error()), hint(err.Error()))}
	}
}

// hint is the remedy for the decoding errors that people meet most.
func hint(text string) string {
	switch {
	case strings.HasPrefix(text, "time: "):
		return ": write the timeout of a kms provider as in 3s or 500ms"
	case strings.Contains(text, "of type struct"):
		return ": " + expected
	case strings.Contains(text, "of type []"):
		return ": make it a list"
	case strings.HasSuffix(text, "of type string"):
		return ": put the value in quotes"
	case strings.Contains(text, "tab character"):
		return ": indent with spaces"
	}
	return ""
}

// kindOf is what the file calls itself, empty where it does not say.
func kindOf(data []byte) schema.GroupVersionKind {
	asJSON, err := utilyaml.ToJSON(data)
	if err != nil {
		return schema.GroupVersionKind{}
	}
	kind, err := json.DefaultMetaFactory.Interpret(asJSON)
	if err != nil {
		return schema.GroupVersionKind{}
	}
	return *kind
}

// moreDocuments reports whether something stands after the first YAML document.
// The decoder reads JSON by itself, and whole.
func moreDocuments(data []byte) bool {
	if utilyaml.IsJSONBuffer(data) {
		return false
	}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	var document any
	if err := documents.Decode(&document); err != nil {
		return false
	}
	for {
		document = nil
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return false
		}
		if err != nil || document != nil {
			return true
		}
	}
}

var (
	// afterSecret is a value that became part of a name: "secret:c2Vj".
	afterSecret = regexp.MustCompile(`(?i)secret:[^"]*`)
	// longWord could be a key: the shortest, of 16 bytes, takes 22 characters of
	// base64.
	longWord = regexp.MustCompile(`[A-Za-z0-9+/=_-]{20,}`)
	space    = regexp.MustCompile(`\s+`)
)

// typeNames are the long words that decoding errors contain of themselves.
var typeNames = map[string]bool{
	"EncryptionConfiguration": true,
	"ResourceConfiguration":   true,
	"ProviderConfiguration":   true,
	"SecretboxConfiguration":  true,
	"IdentityConfiguration":   true,
}

const redacted = "[redacted]"

// withoutSecret takes out what follows "secret:". Without a space between the two
// it is no field of its own: indented as it likes, it continues the value above it.
func withoutSecret(text string) string {
	return afterSecret.ReplaceAllString(text, "secret:"+redacted)
}

// shownValue is a value of the file within a message.
func shownValue(value string) string { return shorten(withoutSecret(value), maxValue) }

// scrub takes out of a decoding error what could be key material, and puts it
// on one line.
func scrub(text string) string {
	if strings.Contains(text, "map key") { // followed by a dump of key and value
		return "yaml: a mapping has a key that is not a plain word"
	}
	if strings.HasPrefix(text, "time: ") { // may quote a part of the value first
		_, value, _ := strings.Cut(text, " duration ")
		text = "time: invalid duration " + value
	}
	text, _, _ = strings.Cut(text, " of type struct {") // followed by Go source
	text = withoutSecret(text)
	text = longWord.ReplaceAllStringFunc(text, func(word string) string {
		if typeNames[word] {
			return word
		}
		return redacted
	})
	return shorten(space.ReplaceAllString(text, " "), maxText)
}
