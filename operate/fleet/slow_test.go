package fleet_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/operate/fleet"
)

// left tells for how long a request may take, and does not answer.
type left map[string]time.Duration

func (l left) RoundTrip(r *http.Request) (*http.Response, error) {
	until, _ := r.Context().Deadline()
	l[r.Method] = time.Until(until)
	return nil, errors.New("no answer")
}

// An admission webhook that is away takes 10 s by default, and with the failurePolicy
// Ignore the write succeeds then.
func TestACanaryMayTakeAsLongAsAWebhook(t *testing.T) {
	for timeout, most := range map[time.Duration]time.Duration{0: fleet.WriteTimeout, time.Minute: fleet.WriteTimeout, 7 * time.Second: 7 * time.Second} {
		asked := left{}
		f, err := fleet.New([]fleet.Member{{Name: "cp-1", Config: &rest.Config{Host: "http://127.0.0.1:1", Timeout: timeout, Transport: asked}}}, clock.RealClock{})
		require.NoError(t, err)
		secrets := schema.GroupResource{Resource: "secrets"}
		_, err = f.Write(t.Context(), "cp-1", secrets)
		require.ErrorContains(t, err, "no answer")
		require.InDelta(t, most, asked[http.MethodPatch], float64(time.Second))
		require.Error(t, f.Read(t.Context(), "cp-1", secrets.WithVersion("v1"), fleet.Written{Resource: secrets, Namespace: "kube-system", Name: "c", Version: 1}))
		require.InDelta(t, fleet.Timeout, asked[http.MethodGet], float64(time.Second))
	}
}

// hung answers nothing until it is given up.
type hung struct{}

func (hung) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestAWriteThatHangsNamesTheWebhooks(t *testing.T) {
	f, err := fleet.New([]fleet.Member{{Name: "cp-1", Config: &rest.Config{Host: "http://127.0.0.1:1", Timeout: time.Millisecond, Transport: hung{}}}}, clock.RealClock{})
	require.NoError(t, err)
	_, err = f.Write(t.Context(), "cp-1", schema.GroupResource{Resource: "secrets"})
	require.ErrorContains(t, err, "an admission webhook that is away or slow may hold up what is written")
}
