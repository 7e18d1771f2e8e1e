package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A plugin that renews connections (GOAWAY by MaxConnectionAge) while a slow call
// is under way: gRPC dials the new connection while the old one drains. When the
// old one ends, the link must not take the new one for gone.
// As above, but the server's age is such that only the first connection is renewed:
// how long does it last?
// An outage that has counted for a minute does not become health because it now
// has another face.
func TestAnotherTroubleIsNotAGrace(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	k := Known{Began: t0}
	k.Status = k.Status.After(nil, t0, t0)
	k.Encrypt = k.Encrypt.After(nil, t0, t0)
	k.Decrypt = k.Decrypt.After(nil, t0, t0)
	at := t0.Add(60 * time.Second)
	k.Status = k.Status.After(TroubleOf("status", status.Error(codes.DeadlineExceeded, "hangs")), at, at)
	require.NotNil(t, k.Condition(Writes, 3*time.Minute, at).Trouble)
	at = at.Add(60 * time.Second)
	k.Status = k.Status.After(TroubleOf("status", status.Error(codes.Unavailable, "gone")), at, at)
	require.NotNil(t, k.Condition(Writes, 3*time.Minute, at).Trouble, "it was not well a moment ago, nor since")
}
