package node

import (
	"strings"
	"testing"
)

// What it is started with is on record, however long that is, or nothing would be known of the others.
func TestAPluginWithLongArgumentsIsTriedAsAnyOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	d := r.draft(2, 2, 1)
	d.Plugins[0] = r.command("a key file")
	d.Plugins[0].KeyID = 2
	long := strings.Repeat(", '"+strings.Repeat("&", 4000)+"'", 3) // of which JSON has six letters for each
	d.Plugins[0].Settings = []byte(strings.Replace(string(d.Plugins[0].Settings), "serve,", "serve"+long+",", 1))
	r.give(d)
	r.until("it does not come, and is told", tells("plugin of keyID 2 ended by itself"))
	r.give(r.draft(3, 1))
	r.until("it is given up", settled(3, 1))
}
