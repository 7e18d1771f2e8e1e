package kmsplugin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/bubble"
)

// A Service that somebody has written by hand may never look at its ctx.
func TestACallOfAnyServiceEndsInTime(t *testing.T) {
	for name, test := range map[string]struct {
		within time.Duration // what the client waits for, or 0
		ends   time.Duration
		code   codes.Code
	}{
		"the client's deadline": {3 * time.Second, 3 * time.Second, codes.DeadlineExceeded},
		"no deadline":           {0, time.Minute, codes.DeadlineExceeded},
		"a long one":            {time.Hour, time.Minute, codes.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGuard(klog.Background(), clock.RealClock{}, Observer{})
				ctx := t.Context()
				if test.within > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.within)
					defer cancel()
				}
				hangs, late := make(chan struct{}), &kmsapi.DecryptResponse{Plaintext: []byte("dek")}
				start := time.Now()
				_, err := g.intercept(ctx, &kmsapi.DecryptRequest{}, &grpc.UnaryServerInfo{FullMethod: "/v2.KeyManagementService/Decrypt"}, func(context.Context, any) (any, error) {
					<-hangs
					return late, nil
				})
				require.Equal(t, test.code, status.Code(err))
				require.Equal(t, test.ends, time.Since(start))
				require.Zero(t, g.running.Load())
				close(hangs)
				synctest.Wait()
				require.Equal(t, make([]byte, 3), late.Plaintext, "nobody waits for the DEK any more")
			})
		})
	}
}
