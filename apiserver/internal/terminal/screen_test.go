package terminal

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// draw gives the texts of a picture, by their lines and colours.
func draw(t *testing.T, columns int, written string) (texts []string, picture string) {
	t.Helper()
	s := NewScreen(columns)
	_, err := io.WriteString(s, written)
	require.NoError(t, err)
	picture = string(s.SVG("a <title>"))
	decoder, text := xml.NewDecoder(strings.NewReader(picture)), false
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			return texts, picture
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			text = token.Name.Local == "text"
			if text {
				texts = append(texts, "")
				for _, a := range token.Attr {
					if a.Name.Local == "class" {
						texts[len(texts)-1] = a.Value + " "
					}
				}
			}
		case xml.CharData:
			if text {
				texts[len(texts)-1] += string(token)
			}
		case xml.EndElement:
			text = false
		}
	}
}

func TestWhatIsDrawn(t *testing.T) {
	for written, want := range map[string][]string{
		"a\nb\n\n":                         {"a", "b"},
		"a & <b>":                          {"a & <b>"},
		"50%\r\x1b[Kdone\r\n":              {"done"},
		"longer\rab":                       {"abnger"},
		"\x1b[31mred\x1b[0m \x1b[32mgreen": {"c31 red", "c32 green"},
		"0123456789ten":                    {"0123456789", "ten"},
		"sha256:ab…":                       {"sha256:ab…"},
		"  indented":                       {"  indented"},
	} {
		got, picture := draw(t, 10, written)
		require.Equal(t, want, got)
		require.Contains(t, picture, "prefers-color-scheme: dark")
	}
}

func TestWhatIsNotKnownIsNotDrawn(t *testing.T) {
	for _, written := range []string{"\x1b[2J", "\x1b]0;title\a", "\x1b", "\x1b[31", "\a", "\xff"} {
		_, err := NewScreen(10).Write([]byte(written))
		require.Error(t, err, "%q", written)
	}
}
