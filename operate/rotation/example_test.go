package rotation_test

import (
	"fmt"
	"time"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// A plugin names a new key_id, one of two apiservers is behind, and then both
// write under it.
func ExampleNext() {
	b := envelope.HashKeyID("key-2")
	state, err := rotation.NewOnePlugin(rotation.Plan{
		Configs:   map[string][]string{"cp-1": {"sha256:5e"}, "cp-2": {"sha256:5e"}},
		Resources: []string{"secrets"},
		Hold:      rotation.DefaultHold,
	}, []string{"vault"}, envelope.HashKeyID("key-1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	writes := func(keyID string) rotation.Instance {
		return rotation.Instance{CheckedAt: now, ConfigHash: "sha256:5e", Providers: map[string]rotation.Provider{
			"vault": {Healthy: true, KeyID: b, WroteKeyID: keyID, WroteAt: now}}}
	}
	shown := rotation.Shown{KeyIDs: map[string]string{"vault": b}, Resources: []string{"secrets"}, Etcds: []uint64{7}}
	for _, second := range []string{envelope.HashKeyID("key-1"), b, b} {
		var d rotation.Decision
		instances := map[string]rotation.Instance{"cp-1": writes(b), "cp-2": writes(second)}
		shown.At, shown.Identities = now, rotation.Identities(instances)
		state, d = rotation.Next(state, rotation.Observation{Instances: instances,
			Shown: map[string]rotation.Shown{"cp-1": shown, "cp-2": shown}}, now)
		for _, action := range d.Actions {
			fmt.Printf("do %T\n", action)
		}
		for _, w := range d.Waiting {
			fmt.Println("wait:", w.Reason, w.Instances)
		}
		now = now.Add(time.Duration(rotation.DefaultHold))
	}
	// Output:
	// do rotation.Canary
	// wait: unproven [cp-2]
	// wait: holding []
	// do rotation.Migrate
	// wait: migrating []
}
