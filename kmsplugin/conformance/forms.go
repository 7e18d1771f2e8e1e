package conformance

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// forms are the ways in which bytes are put into a text.
type forms struct {
	texts  [][]byte
	byByte *regexp.Regexp // one after the other, each as a number or an escape, from the first on
	first  [][]byte       // what that begins with: to look for it takes less than to try at each place
}

// formsOf are those of bytes of 0xc0 and above.
func formsOf(secret []byte) forms {
	latin := make([]rune, len(secret))
	for i, b := range secret {
		latin[i] = rune(b)
	}
	f := forms{texts: [][]byte{secret, []byte(string(latin))}, byByte: byByte(secret), first: beginsOf(secret[0])}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for _, text := range shifted(secret, encoding.EncodeToString, 3, 6) {
			for _, signs := range escapedSigns {
				f.texts = append(f.texts, []byte(strings.NewReplacer("+", signs[0], "/", signs[1]).Replace(text)))
			}
		}
	}
	for _, encoding := range []*base32.Encoding{base32.StdEncoding, base32.HexEncoding} {
		for _, text := range shifted(secret, encoding.WithPadding(base32.NoPadding).EncodeToString, 5, 5) {
			f.texts = append(f.texts, []byte(text), []byte(strings.ToLower(text)))
		}
	}
	return f
}

// escapedSigns are the two signs of base64 as they are, and as URLs, JSON, HTML and XML have them.
var escapedSigns = [][2]string{
	{"+", "/"}, {"%2B", "%2F"}, {"%2b", "%2f"}, {"+", `\/`}, {`\u002B`, "/"}, {`\u002b`, "/"},
	{`\u002B`, `\u002F`}, {`\u002b`, `\u002f`}, {"&#43;", "/"}, {"&#43;", "&#47;"}, {"&#x2B;", "/"}, {"&#x2B;", "&#x2F;"},
}

// shifted is what an encoding makes of a secret for certain, whatever number of bytes stands
// before it: of so many it makes whole letters, and each letter is so many bits.
func shifted(secret []byte, encode func([]byte) string, whole, bits int) (texts []string) {
	for before := range whole {
		text := encode(append(make([]byte, before), secret...))
		texts = append(texts, text[(before*8+bits-1)/bits:(before+len(secret))*8/bits])
	}
	return texts
}

// between is what stands between two bytes that are printed one by one: marks and quotes, the end
// of a line of a dump with its text and the next one's offset, or the index of the next byte.
const between = `(?:[\s,:;."'\\-]*|\s+[^\n]*?(?:\n|\\+n)[0-9a-f]{4,16}:?\s+|[\s,]*\\*"\d+\\*":\s*)`

// byByte finds bytes that are printed one by one: as decimals, with and without a sign; as hex,
// octal and bits, with and without a prefix; as escapes of any language, also where a backslash is
// escaped again; and as letters. The last byte may be half a letter with what follows, and is
// left away.
func byByte(secret []byte) *regexp.Regexp {
	const hex, bits = `(?:0x|\\+x|\\+x\{|\\+u00|\\+u\{|\\+udc|(?:&|\\+u0026)#x|%)?`, `(?:0b)?`
	var each []string
	for _, b := range secret[:len(secret)-1] {
		each = append(each, fmt.Sprintf(`(?:(?:(?:&|\\+u0026)#)?%d|%d|%s%02x\}?|(?:0o|\\+)?%03o|%s%08b|%s)`,
			b, int8(b), hex, b, b, bits, b, regexp.QuoteMeta(string(rune(b)))))
	}
	return regexp.MustCompile(`(?i)^` + strings.Join(each, between))
}

// beginsOf are the ways in which byByte has one byte, without what may stand before it.
func beginsOf(b byte) [][]byte {
	hex := fmt.Sprintf("%02x", b)
	begins := [][]byte{fmt.Appendf(nil, "%d", b), fmt.Appendf(nil, "%d", int8(b)), fmt.Appendf(nil, "%03o", b), fmt.Appendf(nil, "%08b", b)}
	for _, upper := range []string{hex, strings.ToUpper(hex), strings.ToUpper(hex[:1]) + hex[1:], hex[:1] + strings.ToUpper(hex[1:])} {
		begins = append(begins, []byte(upper))
	}
	for letter := rune(b); ; {
		begins = append(begins, []byte(string(letter)))
		if letter = unicode.SimpleFold(letter); letter == rune(b) {
			return begins
		}
	}
}

// longest is more than a secret that is printed byte by byte takes, in bytes.
const longest = 4096

// areIn reports whether a text has one of them.
func (f forms) areIn(text []byte) bool {
	for _, form := range f.texts {
		if bytes.Contains(text, form) {
			return true
		}
	}
	for _, first := range f.first {
		for rest := text; ; rest = rest[1:] {
			at := bytes.Index(rest, first)
			if at < 0 {
				break
			}
			if rest = rest[at:]; f.byByte.Match(rest[:min(longest, len(rest))]) {
				return true
			}
		}
	}
	return false
}
