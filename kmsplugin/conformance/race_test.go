package conformance

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/utils/clock"
)

// atOnce is a clock on which nobody waits.
type atOnce struct{ clock.RealClock }

func (atOnce) After(time.Duration) <-chan time.Time {
	over := make(chan time.Time)
	close(over)
	return over
}

// counted is a plugin whose key_id is a number.
type counted struct {
	kmsapi.KeyManagementServiceClient
	keyID atomic.Int64
	after chan struct{} // closed at a call of Encrypt
	left  atomic.Int64  // so many calls later
}

func newCounted(calls int64) *counted {
	c := &counted{after: make(chan struct{})}
	c.left.Store(calls)
	return c
}

func (c *counted) Status(context.Context, *kmsapi.StatusRequest, ...grpc.CallOption) (*kmsapi.StatusResponse, error) {
	return &kmsapi.StatusResponse{Version: "v2", Healthz: "ok", KeyId: strconv.FormatInt(c.keyID.Load(), 10)}, nil
}

func (c *counted) Encrypt(context.Context, *kmsapi.EncryptRequest, ...grpc.CallOption) (*kmsapi.EncryptResponse, error) {
	if c.left.Add(-1) == 0 {
		close(c.after)
	}
	id := strconv.FormatInt(c.keyID.Load(), 10)
	return &kmsapi.EncryptResponse{Ciphertext: []byte(id), KeyId: id}, nil
}

func (c *counted) session() *session {
	return &session{Options: Options{Clock: atOnce{}}.withDefaults(), client: &client{KeyManagementServiceClient: c}, told: newTold()}
}

// However long the KMS takes to rotate the key, and however many calls are made meanwhile,
// somebody calls when it has.
func TestARaceLastsUntilTheRotationHasShown(t *testing.T) {
	c := newCounted(racers * 25_000)
	r := c.session().startRace(t.Context(), "0", true)
	ended := make(chan struct{})
	go func() { r.ended.Wait(); close(ended) }()
	select {
	case <-c.after:
	case <-ended:
		t.Fatal("nobody calls any more, and the key was not rotated yet")
	}
	c.keyID.Store(1)
	r.rotated.Store(true)
	r.encrypted.Wait()
	require.False(t, isOver(ended), "and not yet seen")
	r.over.Store(true)
	<-ended
	require.NoError(t, r.err)
	require.NoError(t, r.wrong)
	require.False(t, r.back)
	require.GreaterOrEqual(t, r.later, racers*silent)
	require.Len(t, r.kept, 2)
	require.Len(t, r.kept["1"].last, keptCalls)
}

func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// What a race keeps is bounded, also of a plugin with another key_id for each call.
func TestARaceKeepsAFew(t *testing.T) {
	r := &race{kept: map[string]*ends{}}
	var racing sync.WaitGroup
	for n := range 4 {
		racing.Go(func() {
			for i := range 1000 {
				r.note(&sealed{nil, &kmsapi.EncryptResponse{KeyId: strconv.Itoa(n*1000 + i)}}, false, nil, nil)
			}
		})
	}
	racing.Wait()
	require.Equal(t, 4000, r.calls)
	require.Len(t, r.kept, keptIDs)
}

func TestARaceInWhichNobodyCalledAfterTheRotationIsUnknown(t *testing.T) {
	s := newCounted(0).session()
	w, err := s.wrap(t.Context())
	require.NoError(t, err)
	s.rotated = &rotations{tell: true, made: []*rotation{{before: "0", after: "1", old: []*sealed{w}, fresh: []*sealed{w}, race: &race{calls: 100}}}}
	err = labelsAgreeInRotation(t.Context(), s)
	require.ErrorContains(t, err, "nobody called Encrypt after the rotation")
	require.NotErrorAs(t, err, new(failure))
}
