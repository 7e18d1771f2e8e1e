package lookahead

import "strings"

// next is the first key after another.
func next(key string) string { return key + "\x00" }

// following is the first string after all that begin with s; "" if there is none.
func following(s string) string {
	last := len(s) - 1
	for last >= 0 && s[last] == 0xff {
		last--
	}
	if last < 0 {
		return ""
	}
	return s[:last] + string([]byte{s[last] + 1})
}

// surelyShared is how many bytes all keys between two share with the first.
func surelyShared(after, before string) int {
	n := 0
	for n < len(after) && before <= following(after[:n+1]) {
		n++
	}
	return n
}

// Names are made of bytes from '-' to 'z', nearly all of them, so they are halved
// as numbers of that base. As many digits as here fit into 63 bits.
const (
	lowest, highest = '-', 'z'
	base            = highest - lowest + 1
	digits          = 10
)

// halfway is a string about halfway between two, of which so many bytes are the
// same, or would be if the second were not the end of all that begin with them.
func halfway(after, before string, same int) string {
	end := number(strings.Repeat(string(rune(highest)), digits))
	if rest, ok := strings.CutPrefix(before, after[:same]); ok {
		end = number(rest)
	}
	n := (number(after[same:]) + end) / 2
	var text [digits]byte
	for i := range digits {
		text[digits-1-i] = byte(lowest + n%base)
		n /= base
	}
	return after[:same] + string(text[:])
}

// number is what the first digits of s are worth; those that are missing are 0,
// and other bytes are worth as much as the nearest digit.
func number(s string) uint64 {
	n := uint64(0)
	for i := range digits {
		n *= base
		if i < len(s) {
			n += uint64(min(max(s[i], lowest), highest) - lowest)
		}
	}
	return n
}
