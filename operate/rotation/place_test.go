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
