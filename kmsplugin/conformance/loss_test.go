package conformance

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// Every code that is not of a loss does not tell of it.
func TestTheCodesOfEachLoss(t *testing.T) {
	for loss, right := range map[Loss][]codes.Code{
		LossOfKMS:         {codes.Unavailable},
		LossOfCredentials: {codes.PermissionDenied, codes.Unauthenticated},
		LossOfKey:         {codes.FailedPrecondition, codes.NotFound},
		"": {codes.Unavailable, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.NotFound,
			codes.ResourceExhausted, codes.Aborted},
	} {
		for code := codes.OK; code <= codes.Unauthenticated; code++ {
			if slices.Contains(right, code) {
				require.NoError(t, loss.told(code), "%q %s", loss, code)
				continue
			}
			require.ErrorContains(t, loss.told(code), code.String()+" does not say ", "%q", loss)
		}
	}
}
