package preflight_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/bubble"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/operate/preflight"
)

// socketOf is the path in an endpoint of a fault plugin.
func socketOf(endpoint string) string { return endpoint[len("unix://"):] }

// triedFor is the verdict of a plugin at an endpoint, with the quick checks.
func triedFor(t *testing.T, endpoint string, steps ...preflight.Step) preflight.Verdict {
	t.Helper()
	plugin, err := envelope.Dial(envelope.Endpoint(endpoint), 10*time.Second, nil)
	require.NoError(t, err)
	defer plugin.Close()
	steps = append([]preflight.Step{preflight.QuickChecks(socketOf(endpoint))}, steps...)
	return preflight.Trial{Tries: 2, Pause: time.Millisecond}.Of(t.Context(), preflight.Candidate{Hash: "h", Plugin: plugin, Steps: steps})
}

// What Status, Encrypt and Decrypt of one DEK do not show, the quick checks do.
func TestAFlawOfAPluginThatWorksIsFinal(t *testing.T) {
	for flaw, check := range map[faultplugin.Flaw]string{
		faultplugin.AltersNewlines: "round-trip",
		faultplugin.LeaksPlaintext: "ciphertext-hides",
		faultplugin.ReusesNonce:    "ciphertext-fresh",
	} {
		t.Run(check, func(t *testing.T) {
			v := triedFor(t, faultplugin.StartKMS(t, flaw).Endpoint())
			require.Equal(t, preflight.Refused, v.Outcome, v.Failure)
			require.Equal(t, "quick checks", v.Failure.Step)
			require.Contains(t, v.Failure.Text, check+": ")
			require.Equal(t, 1, v.Tries)
		})
	}
	v := triedFor(t, faultplugin.StartKMS(t).Endpoint())
	require.Equal(t, preflight.Passed, v.Outcome, v.Failure)
}

// Plugins of clouds name a key by its path, and decrypt whatever the key_id: conform tells of it, and a
// cluster runs well with them.
func TestAPluginThatIsWrongInWhatHarmsNoDataIsNotRefused(t *testing.T) {
	v := triedFor(t, faultplugin.StartKMS(t, faultplugin.ShowsAddress, faultplugin.AnyKeyID).Endpoint())
	require.Equal(t, preflight.Passed, v.Outcome, v.Failure)
}

// A KMS that goes away in the midst of a step makes everything look wrong.
func TestWhatIsFoundWhileAKMSGoesAwayIsNotFinal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, down := newCandidate(), false
		c.status = func(int) (envelope.Status, error) {
			if down {
				return envelope.Status{}, status.Error(codes.Unavailable, "away")
			}
			return wellStatus, nil
		}
		tries := 0
		v := preflight.Trial{Each: func(preflight.Verdict) { down = false }}.Of(t.Context(), preflight.Candidate{Plugin: c, Steps: []preflight.Step{{
			Name: "a check", Try: func(context.Context) error {
				if tries++; tries == 1 {
					down = true
					return preflight.Final(errors.New("it is refused by who has gone"))
				}
				return nil
			},
		}}})
		require.Equal(t, preflight.Passed, v.Outcome, v.Failure)
		require.Equal(t, 2, v.Tries)
	})
}

// One that is not there yet may lack a key_id and a version for that.
func TestAPluginThatIsNotWellIsNotRefusedForWhatItLacks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCandidate()
		c.status = func(try int) (envelope.Status, error) {
			if try < 3 {
				return envelope.Status{Healthz: "the KMS is away"}, nil
			}
			return wellStatus, nil
		}
		v := tried(c, preflight.Candidate{})
		require.Equal(t, preflight.Passed, v.Outcome, v.Failure)
		require.Equal(t, 3, v.Tries)
	})
}

func TestAnotherKeyIDThanExpectedIsWaitedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		v := tried(newCandidate(), preflight.Candidate{Expected: envelope.HashKeyID("k2")})
		require.Equal(t, preflight.NotYet, v.Outcome, "it may lag behind, or the bundle has to be tried again")
		require.Contains(t, v.Failure.Text, "was expected")
		require.Equal(t, envelope.Disagreement, v.Failure.Problem)
		v = tried(newCandidate(), preflight.Candidate{Expected: envelope.HashKeyID("k1")})
		require.Equal(t, preflight.Passed, v.Outcome)
	})
}

// A plugin that cannot open what the former has wrapped says so in words of the KMS, or is away.
func TestASampleThatDoesNotOpenIsFinalIfThePluginSaysSo(t *testing.T) {
	for code, want := range map[codes.Code]preflight.Outcome{
		codes.NotFound: preflight.Refused, codes.InvalidArgument: preflight.Refused,
		codes.Unavailable: preflight.NotYet, codes.PermissionDenied: preflight.NotYet, codes.Unknown: preflight.NotYet,
	} {
		bubble.Test(t, func(t *testing.T) {
			c := newCandidate()
			c.opens = func(w envelope.Wrapped) ([]byte, error) {
				if w.KeyID == "k0" {
					return nil, status.Error(code, "no")
				}
				return flipped(w.Ciphertext), nil
			}
			v := tried(c, preflight.Candidate{Samples: []*preflight.Sample{{Wrapped: envelope.Wrapped{KeyID: "k0", Ciphertext: []byte("c")}, DEK: []byte("d")}}})
			require.Equal(t, want, v.Outcome, code)
			require.Equal(t, "open what the plugin in use has wrapped", v.Failure.Step)
		})
	}
}

func TestATrialWithoutABoundEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		c := newCandidate()
		c.status = failing(codes.Unavailable)
		told := 0
		v := preflight.Trial{Tries: -1, Each: func(v preflight.Verdict) { told++; require.Equal(t, told, v.Tries) }}.Of(ctx, preflight.Candidate{Plugin: c})
		require.Equal(t, preflight.NotYet, v.Outcome)
		require.Equal(t, told, v.Tries)
		require.InDelta(t, 120, v.Tries, 10, "an hour has 120 pauses of 30 s")
	})
}

// counting counts the calls of a plugin that works.
type counting struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	to           *faultplugin.Plugin
	calls, atOne atomic.Int64
	atMost       atomic.Int64
}

func (c *counting) began() func() {
	c.calls.Add(1)
	c.atMost.Store(max(c.atMost.Load(), c.atOne.Add(1)))
	return func() { c.atOne.Add(-1) }
}

func (c *counting) Status(ctx context.Context, r *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	defer c.began()()
	return c.to.Status(ctx, r)
}

func (c *counting) Encrypt(ctx context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	defer c.began()()
	return c.to.Encrypt(ctx, r)
}

func (c *counting) Decrypt(ctx context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	defer c.began()()
	return c.to.Decrypt(ctx, r)
}

// serve serves a plugin until the test ends, at the path of a socket.
func serve(t *testing.T, plugin kmsapi.KeyManagementServiceServer) (socket string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "q")
	require.NoError(t, err)
	listener, err := net.Listen("unix", folder+"/kms.sock")
	require.NoError(t, err)
	server := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(server, plugin)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
		require.NoError(t, os.RemoveAll(folder))
	})
	return folder + "/kms.sock"
}

func TestTheQuickChecksMakeFewCallsOneAtATime(t *testing.T) {
	c := &counting{to: faultplugin.Start(t)}
	err := preflight.QuickChecks(serve(t, c)).Try(t.Context())
	require.Less(t, c.calls.Load(), int64(100))
	require.Greater(t, c.calls.Load(), int64(30), "they were made: %v", err)
	require.Equal(t, int64(1), c.atMost.Load())
}

// faltering answers one Decrypt with something else, and one Encrypt not at all.
type faltering struct {
	*faultplugin.KMS
	encrypted, decrypted atomic.Int64
}

func (f *faltering) Encrypt(ctx context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	if f.encrypted.Add(1) == 3 { // after those of key-id-form and round-trip
		return nil, status.Error(codes.Unavailable, "away")
	}
	return f.KMS.Encrypt(ctx, r)
}

func (f *faltering) Decrypt(ctx context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	if f.decrypted.Add(1) == 1 {
		return &kmsapi.DecryptResponse{Plaintext: []byte("another DEK")}, nil
	}
	return f.KMS.Decrypt(ctx, r)
}

// What was not known beside a failure is not known when that is over.
func TestAQuickCheckThatIsUnknownBesideOneThatFailsOnceIsNotPassed(t *testing.T) {
	err := preflight.QuickChecks(serve(t, &faltering{KMS: faultplugin.StartKMS(t)})).Try(t.Context())
	require.ErrorContains(t, err, "ciphertext-hides could not be carried out")
}

// What could not be carried out is not passed, and is no fault of the plugin.
func TestAQuickCheckThatCouldNotBeCarriedOutIsNeitherPassedNorFinal(t *testing.T) {
	p := faultplugin.Start(t)
	p.Set(func(b *faultplugin.Behaviour) { b.EncryptErr = status.Error(codes.Unavailable, "away") })
	v := preflight.Trial{Tries: 1}.Of(t.Context(), preflight.Candidate{Plugin: newCandidate(), Steps: []preflight.Step{preflight.QuickChecks(socketOf(p.Endpoint()))}})
	require.Equal(t, preflight.NotYet, v.Outcome)
	require.Contains(t, v.Failure.Text, "could not be carried out")
}

// That nobody listens says nothing of the plugin.
func TestQuickChecksThatCouldNotBeginAreNotFinal(t *testing.T) {
	err := preflight.QuickChecks("/nowhere/kms.sock").Try(t.Context())
	require.Error(t, err)
	require.NotEqual(t, preflight.Final(errors.Unwrap(err)), err)
	v := triedFor(t, faultplugin.StartKMS(t).Endpoint(), preflight.QuickChecks("/nowhere/kms.sock"))
	require.Equal(t, preflight.NotYet, v.Outcome)
	require.Equal(t, 2, v.Tries)
}
