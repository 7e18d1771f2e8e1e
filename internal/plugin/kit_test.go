package plugin_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// shut is a back end that cannot be opened.
type shut struct{ why error }

func (s shut) Open(context.Context) (kmsplugin.Session, error) { return nil, s.why }

// What a plugin of the kit says of its KMS is not taken for a plugin that is not there, and
// the other way round.
func TestWhatAPluginOfTheKitSaysIsUnderstood(t *testing.T) {
	for _, test := range []struct {
		why  error
		want plugin.Problem
	}{
		{kmsplugin.ErrUnavailable, plugin.KMSAway},
		{kmsplugin.ErrDenied, plugin.Denied},
		{kmsplugin.ErrThrottled, plugin.Throttled},
		{kmsplugin.ErrKeyDisabled, plugin.KeyDisabled},
	} {
		t.Run(string(test.want), func(t *testing.T) {
			endpoint := plugintest.Endpoint(t)
			keeper := plugintest.Keep(t, shut{fmt.Errorf("%w: so it says", test.why)}, kmsplugin.Config{})
			stop := plugintest.Serve(t, endpoint, keeper)
			conn, err := plugin.Dial(endpoint, 3*time.Second, nil)
			require.NoError(t, err)
			defer conn.Close()
			client := kmsapi.NewKeyManagementServiceClient(conn)

			_, err = client.Status(t.Context(), &kmsapi.StatusRequest{})
			require.ErrorContains(t, err, "so it says")
			require.Equal(t, test.want, plugin.ProblemOf(err))
			require.Equal(t, test.want, plugin.ProblemOf(plugin.Cut(fmt.Errorf("%w%01100d", err, 0))), "also when it is cut")
			_, err = client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
			require.Equal(t, test.want, plugin.ProblemOf(err))
			if test.want != plugin.KMSAway {
				return
			}
			stop()
			_, err = client.Status(t.Context(), &kmsapi.StatusRequest{})
			require.Equal(t, plugin.Unreachable, plugin.ProblemOf(err))
		})
	}
}
