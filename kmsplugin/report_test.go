package kmsplugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	kmsapi "k8s.io/kms/apis/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/bubble"
)

// logged runs a test with a Keeper that writes a log; lines returns how many were written since
// it was asked last, and what.
func logged(t *testing.T, s *shelf, c Config, test func(t *testing.T, k *Keeper, lines func() (int, string))) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		var log strings.Builder
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
		k, err := NewKeeper(s, c)
		require.NoError(t, err)
		stop := k.Start(ctx)
		test(t, k, func() (int, string) {
			text := log.String()
			log.Reset()
			return strings.Count(text, "\n"), text
		})
		require.NoError(t, stop())
	})
}

func TestWhatStaysWrongIsLoggedOnceAMinuteHoweverItIsWorded(t *testing.T) {
	s := newShelf("1")
	logged(t, s, Config{Poll: time.Second, Steady: 1}, func(t *testing.T, _ *Keeper, lines func() (int, string)) {
		n, text := lines()
		require.Equal(t, 1, n, text)
		require.Contains(t, text, "under another key_id")
		for second := range 300 {
			s.set(func() {
				s.err = fmt.Errorf("%w: request %d %s\nE0101 forged", ErrUnavailable, second, strings.Repeat("x", 5000))
			})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		n, text = lines()
		require.Equal(t, 5, n, text)
		require.Less(t, len(text), 5*1500)
		require.Contains(t, text, "since=")
		s.set(func() { s.err = nil })
		poll(1)
		n, text = lines()
		require.Equal(t, 1, n, text)
		require.Contains(t, text, "DEKs can be wrapped again")
		require.Contains(t, text, `after="5m`)
		poll(60)
		n, text = lines()
		require.Zero(t, n, text)
	})
}

// mute takes what it is asked to open, and does not answer.
type mute struct{ *shelf }

func (m mute) Open(ctx context.Context) (Session, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestABackEndThatDoesNotAnswerIsToldOfBeforeItIsGivenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var log lockedLog
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
		k, err := NewKeeper(mute{newShelf("1")}, Config{})
		require.NoError(t, err)
		stop := k.Start(ctx)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "has not answered"), "2.5 s after the start: %s", log.String())
		require.Equal(t, 1, strings.Count(log.String(), "\n"))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Contains(t, log.String(), "no answer in time of 30s", "which is why nothing is wrapped")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "has not answered"), "once, however often it is tried")
		require.NoError(t, stop())
	})
}

func TestCredentialsThatAreOfNoUseAreLoggedOnceAMinute(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("one"), 0o600))
	s := &picky{shelf: newShelf("1")}
	bubble.Test(t, func(t *testing.T) {
		var log strings.Builder
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
		k, err := NewKeeper(s, Config{Poll: time.Second, Credentials: []string{file}})
		require.NoError(t, err)
		stop := k.Start(ctx)
		log.Reset()
		s.set(func() { s.refuses = true })
		require.NoError(t, os.WriteFile(file, []byte("a wrong one"), 0o600))
		poll(9)
		require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
		require.Equal(t, 2, strings.Count(log.String(), "the credentials changed"))
		require.Equal(t, version("1").KeyID(), keyIDOf(t, k), "the session that there was goes on")
		log.Reset()
		s.set(func() { s.refuses = false })
		poll(1)
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "the back end was opened anew")
		require.NoError(t, stop())
	})
}

// picky is a shelf that may refuse whoever logs in.
type picky struct {
	*shelf
	refuses bool
}

func (p *picky) Open(ctx context.Context) (Session, error) {
	p.mu.Lock()
	refuses := p.refuses
	p.mu.Unlock()
	if refuses {
		return nil, ErrDenied
	}
	return p.shelf.Open(ctx)
}

// Anybody who may connect can connect often: what they cause is bounded, and so is the log.
func TestClientsBeyondTheBoundAreTurnedAwayAndToldOfOnceAMinute(t *testing.T) {
	folder, err := os.MkdirTemp("", "kms")
	require.NoError(t, err)
	defer os.RemoveAll(folder)
	var log strings.Builder
	refused := make(chan struct{}, 1000)
	clock := clocktesting.NewFakeClock(time.Now())
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	k, err := NewKeeper(newShelf("1"), Config{})
	require.NoError(t, err)
	server, err := Listen(ctx, "unix://"+folder+"/kms.sock", k, WithClock(clock), WithObserver(Observer{Refused: func() { refused <- struct{}{} }}))
	require.NoError(t, err)
	serving, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(serving) }()
	connect := func() net.Conn {
		conn, err := net.Dial("unix", folder+"/kms.sock")
		require.NoError(t, err)
		return conn
	}
	var silent []net.Conn
	for range maxConnections {
		silent = append(silent, connect())
	}
	for range 2 {
		for range 20 {
			connect().Close()
			<-refused
		}
		clock.Step(reminder)
	}
	silent[0].Close()
	require.Eventually(t, func() bool {
		server.socket.mu.Lock()
		defer server.socket.mu.Unlock()
		return len(server.socket.open) < maxConnections
	}, time.Minute, time.Millisecond, "whoever leaves makes room")
	for _, conn := range silent {
		defer conn.Close()
	}
	stop()
	require.NoError(t, <-ended)
	require.Equal(t, 2, strings.Count(log.String(), "clients were turned away"), log.String())
	require.Contains(t, log.String(), "clients=1 ")
	require.Contains(t, log.String(), "clients=20 ")
}

func TestADEKIsWipedOnceItIsOnItsWay(t *testing.T) {
	codec := forgetful{encoding.GetCodecV2(proto.Name)}
	dek := []byte("dek")
	data, err := codec.Marshal(&kmsapi.DecryptResponse{Plaintext: dek})
	require.NoError(t, err)
	require.Equal(t, make([]byte, 3), dek)
	var answer kmsapi.DecryptResponse
	require.NoError(t, codec.Unmarshal(data, &answer))
	require.Equal(t, "dek", string(answer.Plaintext))
}

// keeping is a Session that does what none should: it keeps the DEK that it was given.
type keeping struct {
	*shelf
	dek []byte
}

func (k *keeping) Open(ctx context.Context) (Session, error) {
	_, err := k.shelf.Open(ctx)
	return k, err
}

func (k *keeping) Wrap(ctx context.Context, v Version, dek, aad []byte) ([]byte, Version, error) {
	k.set(func() { k.dek = dek })
	return k.shelf.Wrap(ctx, v, dek, aad)
}

func TestADEKIsWipedOnceItIsWrapped(t *testing.T) {
	s := &keeping{shelf: newShelf("1")}
	bubble.Test(t, func(t *testing.T) {
		k, err := NewKeeper(s, Config{})
		require.NoError(t, err)
		stop := k.Start(t.Context())
		own := []byte("dek")
		_, err = k.Encrypt(t.Context(), "", own)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 3), s.dek)
		require.Equal(t, "dek", string(own), "that is the caller's")
		request := &kmsapi.EncryptRequest{Plaintext: own}
		_, err = (&adapter{service: k}).Encrypt(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 3), request.Plaintext, "nobody else has that of a request")
		require.NoError(t, stop())
	})
}

func TestTheClassOfAnErrorIsACode(t *testing.T) {
	require.Equal(t, codes.OK, CodeOf(nil))
	require.Equal(t, codes.ResourceExhausted, CodeOf(fmt.Errorf("x: %w", ErrThrottled)))
	require.Equal(t, codes.Canceled, CodeOf(context.Canceled))
}

func TestAPanicThatAnybodyCanCauseIsLoggedOnceAMinute(t *testing.T) {
	var log strings.Builder
	clock := clocktesting.NewFakeClock(time.Now())
	g := newGuard(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))), clock, Observer{})
	panics := func(context.Context, any) (any, error) { panic("x") }
	for range 2 {
		for range 10 {
			_, err := g.intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/v2.KeyManagementService/Decrypt"}, panics)
			require.Equal(t, codes.Internal, CodeOf(err))
		}
		clock.Step(reminder)
	}
	require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "times=10")
}

func TestAServerTellsOfAnswers(t *testing.T) {
	var answered []Call
	clock := clocktesting.NewFakeClock(time.Now())
	g := newGuard(klog.Background(), clock, Observer{Answered: func(c Call) { answered = append(answered, c) }})
	for _, err := range []error{nil, toGRPC(ErrDenied)} {
		_, _ = g.intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/v2.KeyManagementService/Encrypt"}, func(context.Context, any) (any, error) {
			clock.Step(time.Second)
			return nil, err
		})
	}
	require.Equal(t, []Call{{"Encrypt", codes.OK, time.Second}, {"Encrypt", codes.PermissionDenied, time.Second}}, answered)
}
