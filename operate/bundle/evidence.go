package bundle

import (
	"fmt"

	"github.com/kube-atrest/atrest/internal/hashed"
)

// Answer is what was seen of a question. The zero value is that it was not.
type Answer int

// The answers.
const (
	NotSeen Answer = iota
	Yes
	No
)

// Evidence is what was seen of two plugins, the one in use and the one to be, at one
// time. The zero value is nothing.
type Evidence struct {
	// Was and Is name the key_ids of the one in use and of the other, as "sha256:" and the
	// hash, empty where one was not asked or named none.
	Was, Is string
	// Opened tells whether the other gave back a DEK that the one in use had wrapped. No is
	// an answer of the KMS that it cannot, or another DEK; that it was away, or did not let
	// the plugin in, is NotSeen.
	Opened Answer
	// OpenedBack tells the same of the one in use and what the other had wrapped. It may be NotSeen
	// where the one in use works no longer.
	OpenedBack Answer
}

// kekVerdict is what evidence says of two KEKs.
type kekVerdict int

const (
	unknownKEK kekVerdict = iota
	sameKEK
	// otherVersion has another version to write with, and opens what the former wrapped.
	otherVersion
	anotherKEK
)

// proves reports whether a verdict is that what is stored can be opened.
func (k kekVerdict) proves() bool { return k == sameKEK || k == otherVersion }

// verdict is by key_id and by trial, never by what an address or a path says.
func (e Evidence) verdict() (kekVerdict, string) {
	was, is := hashed.Short(e.Was), hashed.Short(e.Is)
	switch {
	case e.Opened == No && e.Was != "" && e.Was == e.Is:
		return anotherKEK, fmt.Sprintf("both name the key_id %s, and it did not open what the one in use had wrapped: another KEK has that key_id", is)
	case e.Opened == No:
		return anotherKEK, "it did not open what the one in use had wrapped: it is another KEK"
	case e.OpenedBack == No:
		return anotherKEK, "the one in use did not open what it had wrapped: where that one still serves, what is written with this one cannot be read"
	case e.Was == "" || e.Is == "":
		return unknownKEK, "the key_ids of both were not seen: ask the one in use and the other for their Status"
	case e.Opened != Yes:
		return unknownKEK, "it was not seen to open what the one in use wraps: have it try"
	case e.Was != e.Is:
		return otherVersion, fmt.Sprintf("it opens what the one in use wraps, and names key_id %s, not %s", is, was)
	}
	return sameKEK, fmt.Sprintf("both name the key_id %s, and it opens what the one in use wraps", is)
}
