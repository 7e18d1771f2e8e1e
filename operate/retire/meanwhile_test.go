package retire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// An apiserver that took another configuration into use and this one again, while the
// objects were counted, may have written with what is to go.
func TestAConfigurationThatWasTakenIntoUseAgainMeanwhileIsAReason(t *testing.T) {
	stock := Stock{"etcd", &audit.Report{Objects: 1, Resources: []audit.Resource{{Name: "secrets", Forms: []audit.Count{
		{Form: audit.Form{Kind: config.KMSv2, Name: "new", KeyIDHash: keyNew}, Objects: 1}}}}}}
	loaded := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	seen := func(since time.Time) map[string]rotation.Instance {
		return map[string]rotation.Instance{"a": {Process: "p", Complete: true, ConfigHash: "sha256:h", ConfigSince: since,
			Providers: map[string]rotation.Provider{"new": {Healthy: true, KeyID: keyNew}}}}
	}
	for after, again := range map[time.Time]bool{loaded: false, loaded.Add(3 * time.Second): false, loaded.Add(-3 * time.Second): false,
		loaded.Add(3 * time.Minute): true, {}: true} {
		e := Evidence{Etcd: stock, Apiservers: [2]map[string]rotation.Instance{seen(loaded), seen(after)}}
		require.Equal(t, !again, e.Answer(Subject{Provider: "old"}, 1).MayGo, after)
	}
	e := Evidence{Etcd: stock, Apiservers: [2]map[string]rotation.Instance{seen(time.Time{}), seen(loaded)}}
	require.False(t, e.Answer(Subject{Provider: "old"}, 1).MayGo, "the first reload of its life")
}
