package conformance

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/utils/clock"
)

const (
	ticks  = 2000 // calls after which what is in front of a ciphertext changes
	noMore = 200  // calls after that until a rotation shows
)

// ticking is a plugin whose ciphertexts begin with a digit of a time that changes seldom, and which
// takes so long to see a rotation that this is in each.
type ticking struct {
	kmsapi.KeyManagementServiceClient

	keyID atomic.Int64

	mu      sync.Mutex
	calls   int
	digit   byte
	rotated bool // and has not shown
	since   int  // digit, when it was
}

func (p *ticking) rotate(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rotated, p.since = true, int(p.digit)
	return nil
}

func (p *ticking) named() string { return strconv.FormatInt(p.keyID.Load(), 10) }

func (p *ticking) Status(context.Context, *kmsapi.StatusRequest, ...grpc.CallOption) (*kmsapi.StatusResponse, error) {
	return &kmsapi.StatusResponse{Version: "v2", Healthz: "ok", KeyId: p.named()}, nil
}

func (p *ticking) Encrypt(ctx context.Context, r *kmsapi.EncryptRequest, _ ...grpc.CallOption) (*kmsapi.EncryptResponse, error) {
	if sent, ok := ctx.Value(sentKey{}).(func()); ok {
		sent()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls++; p.calls%ticks == 0 {
		p.digit++
	}
	if p.rotated && int(p.digit) != p.since && p.calls%ticks >= noMore {
		p.rotated = false
		p.keyID.Add(1)
	}
	id := p.named()
	return &kmsapi.EncryptResponse{Ciphertext: slices.Concat([]byte{p.digit}, random(8), r.Plaintext, []byte(id)), KeyId: id}, nil
}

func (p *ticking) Decrypt(_ context.Context, r *kmsapi.DecryptRequest, _ ...grpc.CallOption) (*kmsapi.DecryptResponse, error) {
	plaintext := r.Ciphertext[9 : len(r.Ciphertext)-1]
	if string(r.Ciphertext[9+len(plaintext):]) != r.KeyId {
		return nil, status.Error(codes.InvalidArgument, "not encrypted under that")
	}
	return &kmsapi.DecryptResponse{Plaintext: plaintext}, nil
}

// soon is a clock on which nobody waits for long, nor keeps others from what they do.
type soon struct{ clock.RealClock }

func (soon) After(time.Duration) <-chan time.Time { return time.After(time.Millisecond) }

// A digit of a time that changes each minute is a key's for anybody who looks for a second.
func TestADigitThatChangesSeldomIsNotTakenForAKey(t *testing.T) {
	p := &ticking{}
	s := &session{Target: Target{Rotate: p.rotate}, Options: Options{Clock: soon{}}.withDefaults(), client: &client{KeyManagementServiceClient: p}, told: newTold()}
	require.NoError(t, labelsAgreeInRotation(t.Context(), s))
	require.Len(t, s.rotated.made, 3)
	require.False(t, s.rotated.tell)
}
