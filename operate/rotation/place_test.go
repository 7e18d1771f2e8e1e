package rotation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// Both wait for a restart: a would write with the new provider then, and b, whose file was
// put back, would not know it. If b's file cannot be written, a's has to be taken back.
func TestTheNextStartOfTwoIsLookedAtTogether(t *testing.T) {
	d := newMoveTest(t)
	for _, name := range []string{"a", "b"} {
		d.has(name, 1)
	}
	a, b := d.seen.Instances["a"], d.seen.Instances["b"]
	a.FileHash, b.FileHash = hashes["a"][2], hashes["b"][0]
	d.seen.Instances["a"], d.seen.Instances["b"] = a, b
	taken := false
	for range 3 {
		for _, action := range d.next(1).Actions {
			if w, ok := action.(rotation.WriteConfig); ok && w.Hashes["a"] == hashes["a"][1] {
				taken = true
			}
		}
	}
	require.True(t, taken)
}

// An unread file is no other file: it ends no step, and nothing begins anew for it.
func TestAFileThatWasNotReadOnceTakesNothingBack(t *testing.T) {
	d := newMoveTest(t)
	file := func(hash string) {
		b := d.seen.Instances["b"]
		b.FileHash = hash
		d.seen.Instances["b"] = b
	}
	d.has("a", 1)
	d.has("b", 1)
	d.next(1)
	d.has("a", 2)
	d.has("b", 2)
	require.Equal(t, []string{"holding"}, reasons(d.next(1)))
	file("")
	require.Contains(t, reasons(d.next(hold/2)), "missing")
	decision := d.next(hold / 2)
	require.Equal(t, []string{"missing"}, reasons(decision), "it is held, and the step does not end")
	require.Empty(t, decision.Actions)
	file("b2")
	require.IsType(t, rotation.Migrate{}, d.next(1).Actions[0], "it was held all the time")
}

// A file of somebody else stops no rewriting and no count, and is told of at once. What
// comes after the count goes by the files.
func TestAFileOfSomebodyElseIsToldOfInEveryStep(t *testing.T) {
	for file, reason := range map[string]string{"x": "foreign_config", "": "missing"} {
		d := newMoveTest(t)
		d.swapped()
		b := d.seen.Instances["b"]
		b.FileHash = file
		d.seen.Instances["b"] = b
		decision := d.next(1)
		require.IsType(t, rotation.Migrate{}, decision.Actions[0])
		require.Contains(t, reasons(decision), reason)
		d.report(rotation.Succeeded, "secrets")
		decision = d.next(1)
		require.IsType(t, rotation.RunAudit{}, decision.Actions[0])
		require.Contains(t, reasons(decision), reason)
		d.audit(newSecrets(9))
		decision = d.next(1)
		require.Empty(t, decision.Actions)
		require.Equal(t, []string{reason}, reasons(decision))
		require.Equal(t, rotation.Step("prove"), d.state.Move.Step)
		b.FileHash = "b2"
		d.seen.Instances["b"] = b
		require.IsType(t, rotation.WriteConfig{}, d.next(1).Actions[0])
	}
}
