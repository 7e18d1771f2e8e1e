package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
)

// hideStandardLog takes the text out of what libraries print with the package log, and leaves
// where they did: net/http prints what a server sends unasked, which may be a DEK.
func hideStandardLog(to io.Writer) {
	log.SetFlags(log.Lshortfile)
	log.SetOutput(places{to})
}

// places writes the place of a line, which is before the first ": ".
type places struct{ to io.Writer }

func (p places) Write(line []byte) (int, error) {
	place, _, _ := bytes.Cut(line, []byte(": "))
	_, err := fmt.Fprintf(p.to, "atrest-kms-plugin: a library logged something at %s: it is not shown, as it may hold a secret\n", place)
	return len(line), err
}
