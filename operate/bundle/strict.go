package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v2"
	"sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// decodeStrict reads one document of YAML or JSON into a struct, and refuses what the
// struct has no field for, what is there twice, and a second document. The error repeats
// no value of the text: somebody may have put a credential there.
func decodeStrict(data []byte, into any) error {
	if !utf8.Valid(data) { // which JSON would have read as something else
		return errors.New("it is no UTF-8")
	}
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		var err error
		if data, err = asJSON(data); err != nil {
			return err
		}
	}
	strict, err := json.UnmarshalStrict(data, into)
	if err != nil {
		return errors.New(withoutValues(err))
	}
	if len(strict) > 0 {
		return fmt.Errorf("%s: check spelling, case and indentation", withoutValues(errors.Join(strict...)))
	}
	return nil
}

func asJSON(data []byte) ([]byte, error) {
	documents := yaml.NewDecoder(bytes.NewReader(data))
	var document any
	if err := documents.Decode(&document); err != nil {
		return nil, notYAML(err)
	}
	if err := documents.Decode(&document); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document: keep one")
	}
	data, err := sigsyaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, notYAML(err)
	}
	return data, nil
}

var line = regexp.MustCompile(`line \d+`)

// notYAML says where the mistake is, and no more of what the parser says: it quotes.
func notYAML(err error) error {
	if at := line.FindString(err.Error()); at != "" {
		return fmt.Errorf("it is no YAML from %s on, or has a key twice", at)
	}
	return errors.New("it is neither YAML nor JSON, or has a key twice")
}

// longWord could be a credential. Names of fields are shorter.
var longWord = regexp.MustCompile(`[^\s"]{33,}`)

// withoutValues is a decoder's error on one line, of bounded length. It names fields,
// and types of Go, and quotes no value but what somebody took for a field.
func withoutValues(err error) string {
	const most = 512
	text := strings.Join(strings.Fields(err.Error()), " ")
	text = longWord.ReplaceAllString(text, "[redacted]")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
