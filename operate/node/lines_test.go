package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A writer is a plugin that logs, and told what was passed on of it.
type writer struct {
	t     *testing.T
	lines *lines
	told  []string
}

func newWriter(t *testing.T) *writer {
	s := Spec{Instance: "abc", KeyID: "7", Folder: t.TempDir()}
	return &writer{t: t, lines: linesOf(s)}
}

// writes appends to the log and has it passed on, as one round does.
func (w *writer) writes(text string, secrets ...string) {
	w.t.Helper()
	file, err := os.OpenFile(w.lines.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(w.t, err)
	_, err = file.WriteString(text)
	require.NoError(w.t, err)
	require.NoError(w.t, file.Close())
	w.round(secrets...)
}

func (w *writer) round(secrets ...string) {
	w.t.Helper()
	var all [][]byte
	for _, secret := range secrets {
		all = append(all, []byte(secret))
	}
	require.NoError(w.t, w.lines.passOn(all, func(line string) {
		text, ok := strings.CutPrefix(line, "kms-7 abc: ")
		require.True(w.t, ok, line)
		w.told = append(w.told, text)
	}))
}

func TestALogThatIsNotThereTellsNothing(t *testing.T) {
	w := newWriter(t)
	w.round()
	require.Empty(t, w.told)
}

func TestALineThatIsWrittenInPartsIsPassedOnOnceAndWhole(t *testing.T) {
	w := newWriter(t)
	w.writes("the first\nthe sec")
	require.Equal(t, []string{"the first"}, w.told)
	w.writes("ond, in")
	w.round()
	require.Equal(t, []string{"the first"}, w.told)
	w.writes(" parts\n")
	require.Equal(t, []string{"the first", "the second, in parts"}, w.told)
}

func TestACredentialThatIsWrittenInPartsIsNotPassedOn(t *testing.T) {
	const secret = "hvs.0123456789"
	for at := range len(secret) {
		w := newWriter(t)
		w.writes("token "+secret[:at], secret)
		w.writes(secret[at:]+" is refused\n", secret)
		require.Equal(t, []string{"token (credential) is refused"}, w.told)
	}
}

func TestALineIsCutAtItsBoundAfterItsCredentialsAreTakenOut(t *testing.T) {
	const secret = "hvs.0123456789"
	for length, want := range map[int]int{maxLine - 1: maxLine - 1, maxLine: maxLine, maxLine + 1: maxLine} {
		w := newWriter(t)
		w.writes(strings.Repeat("x", length) + "\n")
		require.Equal(t, []string{strings.Repeat("x", want)}, w.told)
	}
	w := newWriter(t) // of which a cut before would leave the beginning
	w.writes(strings.Repeat("x", maxLine-5)+secret+"\n", secret)
	require.Equal(t, []string{strings.Repeat("x", maxLine-5) + "(cred"}, w.told)
}

func TestMoreLinesThanARoundPassesOnAreCounted(t *testing.T) {
	text := func(n int) (text string) {
		for i := range n {
			text += fmt.Sprintln("line", i)
		}
		return text
	}
	w := newWriter(t)
	w.writes(text(maxLines))
	require.Len(t, w.told, maxLines)
	require.Equal(t, fmt.Sprint("line ", maxLines-1), w.told[maxLines-1])
	w.told = nil
	w.writes(text(maxLines + 3))
	require.Len(t, w.told, maxLines+1)
	require.Equal(t, "3 lines are left out", w.told[maxLines])
	w.told = nil
	w.writes("after that\n")
	require.Equal(t, []string{"after that"}, w.told)
}

// What a round does not read the next one does.
func TestARoundReadsNoMoreThanItsBound(t *testing.T) {
	line := strings.Repeat("x", 1023) + "\n"
	w := newWriter(t)
	w.writes(strings.Repeat(line, maxRead/1024+2))
	require.Len(t, w.told, maxRead/1024)
	w.round()
	require.Len(t, w.told, maxRead/1024+2)
}

func TestALogThatIsFullIsBegunAnewAndNothingNewIsMissed(t *testing.T) {
	line := strings.Repeat("x", 1023) + "\n"
	w := newWriter(t)
	for range maxLog / maxRead {
		w.writes(strings.Repeat(line, maxRead/1024))
	}
	info, err := os.Stat(w.lines.path)
	require.NoError(t, err)
	require.Zero(t, info.Size())
	require.Len(t, w.told, maxLog/1024)
	w.writes("after that\n")
	require.Equal(t, "after that", w.told[len(w.told)-1])

	require.NoError(t, os.Truncate(w.lines.path, 0)) // by somebody else
	w.writes("new\n")
	require.Equal(t, "new", w.told[len(w.told)-1])
}

func TestWhatSteersATerminalIsNotPassedOn(t *testing.T) {
	w := newWriter(t)
	w.writes("a\x1b[2Jb\x07c\rd\te\xff\u0085f\n")
	require.Equal(t, []string{"a [2Jb c d e? f"}, w.told)
}
