package reload

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A step of a story: at a time since its start, a look at the file, and how
// long the settling then asks to wait.
type step struct {
	at    time.Duration
	event bool
	saw   look
	wait  time.Duration
}

func TestWhenALookCounts(t *testing.T) {
	const quiet, unannounced, patience = 40 * time.Millisecond, time.Second, 10 * time.Second
	a, b := look{hash: "a"}, look{hash: "b"}
	open := look{hash: "a", writing: true}
	gone := look{err: errors.New("gone")}

	stories := map[string][]step{
		"still since its event": {
			{0, true, a, quiet},
			{quiet, false, a, 0},
		},
		"each event begins the quiet anew": {
			{0, true, a, quiet},
			{30 * time.Millisecond, true, a, quiet},
			{40 * time.Millisecond, false, a, 30 * time.Millisecond},
			{70 * time.Millisecond, false, a, 0},
		},
		"content that changed after the last event is new": {
			{0, true, a, quiet},
			{quiet, false, b, quiet},
			{2 * quiet, false, b, 0},
		},
		"no event told: one is not relied on": {
			{0, false, a, unannounced},
			{quiet, false, a, unannounced - quiet},
			{unannounced, false, a, 0},
		},
		"an event long ago does not announce": {
			{0, true, a, quiet},
			{quiet, false, a, 0},
			{time.Hour, false, b, unannounced},
		},
		"open for writing": {
			{0, true, open, quiet},
			{quiet, false, open, quiet},
			{2 * quiet, false, open, quiet},
			{3 * quiet, false, a, 0},
		},
		"left open for ever": {
			{0, true, open, quiet},
			{patience - 1, false, open, 1},
			{patience, false, open, 0},
		},
		"written again and again with the same content": {
			{0, true, a, quiet},
			{patience - 1, true, a, 1},
			{patience, true, a, 0},
		},
		"gone for a while is no outcome": {
			{0, true, gone, patience},
			{time.Second, true, a, quiet},
			{time.Second + quiet, false, a, 0},
			{2 * time.Second, true, gone, patience},
		},
		"gone": {
			{0, true, gone, patience},
			{patience, false, gone, 0},
		},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			s := settling{announced: quiet, unannounced: unannounced, patience: patience}
			for _, step := range story {
				require.Equal(t, step.wait, s.saw(step.saw, step.event, start.Add(step.at)), "at %v", step.at)
			}
		})
	}
}

func TestFileThatIsWrittenAgainIsNotStill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	writeFile(t, path, "content")
	s := settling{announced: 40, unannounced: 1000, patience: 10_000}
	first := lookAt(path)
	require.EqualValues(t, 40, s.saw(first, true, start))
	require.NoError(t, os.Chtimes(path, start, start)) // as writing the same does
	require.EqualValues(t, 40, s.saw(lookAt(path), false, start.Add(40)))

	writeFile(t, path+".new", "content")
	require.NoError(t, os.Chtimes(path+".new", start, start))
	rename(t, path+".new", path)
	require.EqualValues(t, 40, s.saw(lookAt(path), false, start.Add(80)), "another file")
	require.EqualValues(t, 0, s.saw(lookAt(path), false, start.Add(120)))
}

// A content holds keys. What is needed of the last look is what identifies it.
func TestNothingOfTheContentIsKept(t *testing.T) {
	s := settling{announced: 40, unannounced: 1000, patience: 10_000}
	s.saw(look{hash: "a", content: []byte("keys")}, true, start)
	require.Nil(t, s.last.content)
	require.Equal(t, "a", s.last.hash)
}
