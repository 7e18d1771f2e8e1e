package kmsplugin_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// blocking is a service whose Encrypt tells that it was reached and then waits:
// for release, and if patient is false also for the end of its ctx.
type blocking struct {
	scripted
	reached, release chan struct{}
}

func newBlocking(patient bool) blocking {
	b := blocking{scripted: well, reached: make(chan struct{}), release: make(chan struct{})}
	b.encrypt = func(ctx context.Context, _ []byte) (kmsplugin.Sealed, error) {
		ended := ctx.Done()
		if patient {
			ended = nil
		}
		close(b.reached)
		select {
		case <-b.release:
			return kmsplugin.Sealed{Ciphertext: []byte("wrapped"), KeyID: "key-1"}, nil
		case <-ended:
			return kmsplugin.Sealed{}, ctx.Err()
		}
	}
	return b
}

// running is a server with one Encrypt call inside the service.
type running struct {
	endpoint string
	clock    *clocktesting.FakeClock
	stop     context.CancelFunc
	ended    chan error // of Serve
	called   chan error // of the call
}

func start(t *testing.T, service blocking) running {
	t.Helper()
	r := running{
		endpoint: plugintest.Endpoint(t), clock: clocktesting.NewFakeClock(time.Now()),
		ended: make(chan error, 1), called: make(chan error, 1),
	}
	server, err := kmsplugin.Listen(t.Context(), r.endpoint, service, kmsplugin.WithClock(r.clock))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.ended <- server.Serve(ctx) }()
	client := plugintest.Dial(t, r.endpoint)
	go func() {
		_, err := client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
		r.called <- err
	}()
	<-service.reached
	return r
}

// waitForStop returns once the stop timeout is running.
func (r running) waitForStop(t *testing.T) {
	t.Helper()
	require.Eventually(t, r.clock.HasWaiters, time.Minute, time.Millisecond)
}

func TestARunningCallMayFinish(t *testing.T) {
	service := newBlocking(false)
	r := start(t, service)
	r.stop()
	r.waitForStop(t)
	r.clock.Step(4999 * time.Millisecond)
	close(service.release)

	require.NoError(t, <-r.called)
	require.NoError(t, <-r.ended)
}

func TestACallThatOutlastsTheStopTimeoutIsCutOff(t *testing.T) {
	r := start(t, newBlocking(false))
	r.stop()
	r.waitForStop(t)
	r.clock.Step(5 * time.Second)

	require.ErrorContains(t, <-r.ended, "1 calls still ran after 5s and were cut off")
	require.Equal(t, codes.Unavailable, status.Code(<-r.called))
	require.NoFileExists(t, pathOf(r.endpoint))
}

func TestAServiceThatIgnoresItsEndDoesNotHoldTheServer(t *testing.T) {
	service := newBlocking(true)
	defer close(service.release)
	r := start(t, service)
	r.stop()
	r.waitForStop(t)
	r.clock.Step(5 * time.Second)

	require.Error(t, <-r.ended)
	plugintest.Serve(t, r.endpoint, well)
	requireServes(t, r.endpoint)
}

func TestAPeerThatNeverSpeaksDoesNotHoldTheServer(t *testing.T) {
	service := newBlocking(false)
	r := start(t, service)
	silent, err := net.Dial("unix", pathOf(r.endpoint))
	require.NoError(t, err)
	defer silent.Close()
	requireServes(t, r.endpoint) // connections are accepted in turn: silent's is in
	r.stop()
	r.waitForStop(t)
	close(service.release)
	require.NoError(t, <-r.called)
	require.NoError(t, <-r.ended, "by a clock that stands still: gRPC itself would wait a minute")
}

func TestAPeerThatOnlyHoldsAConnectionIsNoFailure(t *testing.T) {
	endpoint := plugintest.Endpoint(t)
	clock := clocktesting.NewFakeClock(time.Now())
	server, err := kmsplugin.Listen(t.Context(), endpoint, well, kmsplugin.WithClock(clock))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	half, err := net.Dial("unix", pathOf(endpoint))
	require.NoError(t, err)
	defer half.Close()
	_, err = half.Write([]byte("PRI * HTTP/2.0\r\n"))
	require.NoError(t, err)
	first := make([]byte, 1)
	_, err = half.Read(first) // the server's own settings: it has accepted
	require.NoError(t, err)
	require.Eventually(t, func() bool { return server.Spoken() == 1 }, time.Minute, time.Millisecond)
	stop()
	require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond)
	clock.Step(5 * time.Second)
	require.NoError(t, <-ended, "no call was cut off")
}

func TestNewcomersFindNothingWhileTheLastCallFinishes(t *testing.T) {
	service := newBlocking(false)
	r := start(t, service)
	r.stop()
	require.Eventually(t, func() bool {
		newcomer, err := net.Dial("unix", pathOf(r.endpoint))
		if err == nil {
			_ = newcomer.Close() // one that stays and says nothing is waited for
		}
		return err != nil
	}, time.Minute, time.Millisecond)
	require.NoFileExists(t, pathOf(r.endpoint))
	_, err := kmsplugin.Listen(t.Context(), r.endpoint, well)
	require.ErrorIs(t, err, kmsplugin.ErrSocketInUse, "its successor waits until it is gone")

	close(service.release)
	require.NoError(t, <-r.called)
	require.NoError(t, <-r.ended)
}

func TestAServerServesOnce(t *testing.T) {
	server, err := kmsplugin.Listen(t.Context(), plugintest.Endpoint(t), well)
	require.NoError(t, err)
	ended, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, server.Serve(ended))
	require.ErrorContains(t, server.Serve(ended), "call Listen again")
}

func TestNoStopTimeoutCutsAtOnce(t *testing.T) {
	service := newBlocking(false)
	endpoint := plugintest.Endpoint(t)
	server, err := kmsplugin.Listen(t.Context(), endpoint, service, kmsplugin.WithStopTimeout(0))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	client := plugintest.Dial(t, endpoint)
	go func() { _, _ = client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")}) }()
	<-service.reached
	stop()
	require.Error(t, <-ended)
}
