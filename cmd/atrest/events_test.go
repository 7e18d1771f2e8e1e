package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// fieldsOf are those of each event, besides time and event: some of "finished", which are
// those of the document that the command ended with else.
var fieldsOf = map[string][]string{
	"step":      {"step", "of", "what", "gate"},
	"turn":      {"actions", "waiting"},
	"problem":   {"problem"},
	"canaries":  {"apiservers"},
	"plan":      {"toRewrite"},
	"rewriting": {"resource", "counts", "total", "perSecond", "secondsLeft", "waiting"},
	"rewritten": {"resource", "counts"},
	"left":      {"resource", "migration", "running", "seconds"},
	"waiting":   {"resource", "migration", "running", "seconds"},
	"finished":  nil,
}

// events EVENT... requires that each line which the last command printed is one, as the docs
// have it, and that the named ones are among them, in this order.
func events(ts *testscript.TestScript, _ bool, args []string) {
	t := worldOf(ts).t
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		var told map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &told), line)
		_, err := time.Parse(time.RFC3339, told["time"].(string))
		require.NoError(t, err)
		name := told["event"].(string)
		fields, known := fieldsOf[name]
		require.True(t, known, line)
		for field := range told {
			require.True(t, fields == nil || slices.Contains(append(fields, "time", "event"), field), line)
		}
		if len(args) > 0 && args[0] == name {
			args = args[1:]
		}
	}
	require.Empty(t, args, "not told, or not in this order")
}

func TestTheDocsNameEveryEvent(t *testing.T) {
	docs, err := os.ReadFile("../../docs/atrest.md")
	require.NoError(t, err)
	for name, fields := range fieldsOf {
		i := strings.Index(string(docs), "\n| `"+name+"` |")
		require.Positive(t, i, name)
		line, _, _ := strings.Cut(string(docs)[i+1:], "\n")
		for _, field := range fields {
			require.Contains(t, line, "`"+field+"`")
		}
	}
}
