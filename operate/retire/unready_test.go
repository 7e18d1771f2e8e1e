package retire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/observe"
)

// A stock kube-apiserver was started while the plugin of "old", which it has in its
// configuration behind "new", was away: its metrics tell nothing of "old", and
// /readyz/kms-providers says that one of its plugins is away. Which providers it has
// nobody knows.
func TestAKubeAPIServerThatIsNotReadyDoesNotTellWhatItHas(t *testing.T) {
	at := time.Unix(1795176000, 0)
	i, err := observe.Metrics(strings.NewReader(fmt.Sprintf(`apiserver_encryption_config_controller_last_config_info{apiserver_id_hash="sha256:a",hash="sha256:1"} 1
apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{key_id_hash=%[1]q,provider_name="new"} 1795175999
apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds{key_id_hash=%[1]q,provider_name="new",transformation_type="to_storage"} 1795175999
`, keyNew)), "failed to perform status section of the healthz check for KMS Provider old, error: connection refused", observe.Moment{At: at})
	require.NoError(t, err)
	form := audit.Form{Kind: config.KMSv2, Name: "new", KeyIDHash: keyNew}
	etcd, err := NewStock("etcd", &audit.Report{Everywhere: true, Objects: 1, Resources: []audit.Resource{{Name: "secrets", Objects: 1, Forms: []audit.Count{{Form: form, Objects: 1}}}}})
	require.NoError(t, err)
	seen := map[string]rotation.Instance{"cp-1": i}
	e := Evidence{Etcd: etcd, Apiservers: [2]map[string]rotation.Instance{seen, seen}, Written: []Written{{"cp-1", form}}}
	for _, what := range []Subject{{Provider: "old"}, {KeyID: keyOld}} {
		answer := e.Answer(what, 1)
		require.False(t, answer.MayGo, what)
		require.Contains(t, answer.Reasons[0].Message, "KMS Provider old, error: connection refused")
	}
}

// Only custom resources are written with the provider, and nothing was since the
// kube-apiserver started. Its plugin names a new key_id at Status and goes on to encrypt
// under the old one: kube-apiserver cannot rotate its DEK, is not ready, and may write with
// the one under the old key_id for three minutes more.
func TestAKubeAPIServerThatCannotFollowItsPluginMayWriteUnderTheOldKey(t *testing.T) {
	at := time.Unix(1795176000, 0)
	i, err := observe.Metrics(strings.NewReader(fmt.Sprintf(`apiserver_encryption_config_controller_last_config_info{apiserver_id_hash="sha256:a",hash="sha256:1"} 1
apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{key_id_hash=%[2]q,provider_name="kms"} 1795170000
apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{key_id_hash=%[1]q,provider_name="kms"} 1795175999
`, keyNew, keyOld)), "failed to rotate DEK uid=..., statusKeyIDHash="+keyNew+", encryptKeyIDHash="+keyOld, observe.Moment{At: at})
	require.NoError(t, err)
	plain := audit.Form{Kind: audit.Plaintext}
	etcd, err := NewStock("etcd", &audit.Report{Everywhere: true, Objects: 1, Resources: []audit.Resource{{Name: "secrets", Objects: 1, Forms: []audit.Count{{Form: plain, Objects: 1}}}}})
	require.NoError(t, err)
	seen := map[string]rotation.Instance{"cp-1": i}
	e := Evidence{Etcd: etcd, Apiservers: [2]map[string]rotation.Instance{seen, seen}, Written: []Written{{"cp-1", plain}}}
	require.False(t, e.Answer(Subject{KeyID: keyOld}, 1).MayGo)
}
