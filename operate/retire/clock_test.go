package retire

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation/observe"
)

// The clock of a kube-apiserver was four minutes slow and has just been set right, or its
// machine was suspended for that long: until its next poll, within a minute, its plugin
// named its key_id more than three minutes ago. It has the provider in its configuration.
func TestAClockThatIsSetForwardTakesNoProviderOutOfTheConfiguration(t *testing.T) {
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	polled := now.Add(-20*time.Second - 4*time.Minute) // by the clock that was slow
	i, err := observe.Metrics(strings.NewReader(fmt.Sprintf(`apiserver_encryption_config_controller_last_config_info{apiserver_id_hash="sha256:a",hash="sha256:1"} 1
apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{key_id_hash=%[1]q,provider_name="old"} %[2]d
`, keyOld, polled.Unix())), "", observe.MomentOf(http.Header{"Date": {now.Format(http.TimeFormat)}}, now))
	require.NoError(t, err)
	require.NotEmpty(t, Subject{Provider: "old"}.usedAs("old", i.Providers["old"]))
}
