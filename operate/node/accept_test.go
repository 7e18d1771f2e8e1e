package node

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// It may wait for another plugin, and the key be another one meanwhile.
func TestAPluginThatPassedAndNamesAnotherKeySinceIsNotAccepted(t *testing.T) {
	key := Key{Settings: "s", Files: "f", KeyIDHash: "the expected"}
	candidate := wants(1, map[string]Key{"1": key})
	p := Plugin{Instance: "i", KeyID: "1", Settings: "s", Files: "f", State: Serving, Well: true, KeyIDHash: "the expected", Tried: Tried{Passed: true}}
	o := Observation{Candidate: &candidate, File: File{Known: true}, Plugins: []Plugin{p}}
	require.Equal(t, []Action{{Verb: AcceptBundle, Bundle: candidate.Hash}}, Decide(o).Actions)
	o.Plugins[0].KeyIDHash = "another"
	require.Empty(t, Decide(o).Actions)
	require.Contains(t, Decide(o).Waits[0], "names key_id another, and not the expected, which the bundle was tried with")
}
