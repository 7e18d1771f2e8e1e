// Package terminal draws what a program wrote to a terminal as an SVG picture: bytes come
// in, with the few control sequences that atrest uses, and text that can be selected goes
// out, in its colours, on a background that goes with the reader's.
package terminal

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// cell is a character with its colour, as the number of the control sequence.
type cell struct {
	text   rune
	colour string
}

// Screen is what stands on a terminal of some columns, and all that left it above.
type Screen struct {
	columns int
	lines   [][]cell
	column  int
	colour  string
}

// NewScreen is an empty one.
func NewScreen(columns int) *Screen { return &Screen{columns: columns, lines: [][]cell{nil}} }

// Write puts text there as a terminal does. What it does not know is an error, so that the
// picture has nothing else than a terminal.
func (s *Screen) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == '\x1b':
			n, err := s.control(rest)
			if err != nil {
				return len(p) - len(rest), err
			}
			size = n
		case r == '\n':
			s.lines, s.column = append(s.lines, nil), 0
		case r == '\r':
			s.column = 0
		case r < ' ' || r == utf8.RuneError:
			return len(p) - len(rest), fmt.Errorf("%q is nothing that is drawn", rest[:size])
		default:
			s.put(r)
		}
		rest = rest[size:]
	}
	return len(p), nil
}

// control does what an escape sequence says: ESC [ PARAMETER LETTER.
func (s *Screen) control(text []byte) (size int, err error) {
	i := 2
	for i < len(text) && (text[i] >= '0' && text[i] <= '9' || text[i] == ';') {
		i++
	}
	if i >= len(text) || text[1] != '[' {
		return 0, fmt.Errorf("%.10q is no control sequence that is drawn", text)
	}
	switch parameter := string(text[2:i]); text[i] {
	case 'm':
		s.colour = strings.TrimLeft(parameter, "0")
	case 'K':
		last := len(s.lines) - 1
		s.lines[last] = s.lines[last][:min(s.column, len(s.lines[last]))]
	default:
		return 0, fmt.Errorf("%q is no control sequence that is drawn", text[:i+1])
	}
	return i + 1, nil
}

func (s *Screen) put(r rune) {
	if s.column == s.columns {
		s.lines, s.column = append(s.lines, nil), 0
	}
	last := len(s.lines) - 1
	for len(s.lines[last]) <= s.column {
		s.lines[last] = append(s.lines[last], cell{text: ' '})
	}
	s.lines[last][s.column] = cell{r, s.colour}
	s.column++
}

// The size of a character, and the space around all of them, in pixels.
const (
	charWidth, lineHeight, margin = 8, 18, 16
)

// style has the colours of a terminal on white and on black. A browser that shows the
// picture in a page goes by what the reader wants.
const style = `
  rect { fill: #f6f8fa; stroke: #d0d7de }
  text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328; white-space: pre }
  .c1 { font-weight: bold }
  .c31 { fill: #cf222e }
  .c32 { fill: #116329 }
  @media (prefers-color-scheme: dark) {
    rect { fill: #0d1117; stroke: #30363d }
    text { fill: #e6edf3 }
    .c31 { fill: #ff7b72 }
    .c32 { fill: #56d364 }
  }
`

// SVG is the picture. The title is for those who hear it.
func (s *Screen) SVG(title string) []byte {
	lines := s.lines
	for len(lines) > 0 && len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	width, height := s.columns*charWidth+2*margin, len(lines)*lineHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n<title>%s</title>\n<style>%s</style>\n",
		width, height, width, height, html.EscapeString(title), style)
	fmt.Fprintf(&b, `<rect x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	for i, line := range lines {
		writeLine(&b, line, margin+i*lineHeight+lineHeight*3/4)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// writeLine writes each part of one colour where it stands, whatever the font's width is.
func writeLine(b *strings.Builder, line []cell, y int) {
	for from := 0; from < len(line); {
		to := from
		var text strings.Builder
		for to < len(line) && line[to].colour == line[from].colour {
			text.WriteRune(line[to].text)
			to++
		}
		if strings.TrimSpace(text.String()) != "" {
			class := ""
			if line[from].colour != "" {
				class = fmt.Sprintf(" class=%q", "c"+line[from].colour)
			}
			fmt.Fprintf(b, `<text x="%d" y="%d" textLength="%d"%s xml:space="preserve">%s</text>`+"\n",
				margin+from*charWidth, y, (to-from)*charWidth, class, html.EscapeString(text.String()))
		}
		from = to
	}
}
