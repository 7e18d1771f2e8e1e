package main

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReportAlignsFactsAndWrapsWhatWasSeen(t *testing.T) {
	var out bytes.Buffer
	r := &report{out: &out}
	r.holds("a fact", 1500*time.Millisecond, []detail{{"check", "one two three"}, {"empty", ""}})

	require.Equal(t, "  ok  a fact"+spaces(factWidth-len("a fact"))+"    1.5 s\n"+
		"       check       one two three\n"+
		"       empty       \n\n", out.String())
	require.Equal(t, []string{"one two", "three"}, wrap("one two three", 8))
}

func TestReportSaysWhyAStepFailed(t *testing.T) {
	var out bytes.Buffer
	(&report{out: &out}).fails("a fact", errors.New("the reason"))
	require.Equal(t, "fail  a fact\n       the reason\n\n", out.String())
}

func TestColoursAreForTerminals(t *testing.T) {
	require.Equal(t, "text", (&report{}).colour("1", "text"))
	require.Equal(t, "\x1b[1mtext\x1b[0m", (&report{terminal: true}).colour("1", "text"))
}

func TestDurationsAreShort(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"7 ms":  7*time.Millisecond + 400*time.Microsecond,
		"2 s":   2 * time.Second,
		"2.3 s": 2340 * time.Millisecond,
		"1m1s":  61 * time.Second,
	} {
		require.Equal(t, want, roughly(d))
	}
}

func spaces(n int) string { return string(bytes.Repeat([]byte(" "), n)) }
