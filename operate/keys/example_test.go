package keys_test

import (
	"bytes"
	"fmt"
	"time"

	"github.com/kube-atrest/atrest/operate/keys"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// A controller stores the records, has the nodes given their configurations, carries out the
// actions, and looks again.
func ExampleNext() {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	in := keys.Input{
		Desired:  keys.Desired{Mode: keys.AESGCM, Resources: []string{"secrets"}},
		Expected: []string{"a"},
		Random:   bytes.Repeat([]byte{1}, keys.KeySize), // of crypto/rand, each time others
	}
	out := keys.Next(in, now)
	for _, change := range out.Records {
		fmt.Println(change.Verb, "key", change.Record.ID, "as", change.Reason)
		in.Records = append(in.Records, change.Record)
	}
	out = keys.Next(in, now)
	shown := func() {
		for _, e := range out.Configs["a"].Entries {
			for _, p := range e.Providers {
				fmt.Print(e.Resource, " ", p.Name, "; ")
			}
		}
		fmt.Println(out.Conditions[0].Type, out.Conditions[0].Status, out.Conditions[0].Reason)
	}
	shown()
	for i := range in.Records {
		in.Records[i] = out.Records[i].Record
	}
	hash := out.Configs["a"].Hash
	in.Observed.Instances = map[string]rotation.Instance{"a": {CheckedAt: now, ConfigHash: hash, FileHash: hash}}
	in.Observed.Shown = map[string]rotation.Shown{"a": {At: now, Identities: rotation.Identities(in.Observed.Instances),
		KeyIDs: map[string]string{rotation.Plain: ""}, Resources: []string{"secrets"}, Etcds: []uint64{1}}}
	out = keys.Next(in, now.Add(time.Second))
	shown()
	// Output:
	// create key 1 as key-does-not-exist
	// secrets identity:; Encrypted False EncryptionInProgress
	// secrets identity:; secrets aesgcm:1_secrets; Encrypted False EncryptionInProgress
}
