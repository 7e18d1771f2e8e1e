package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"
)

// A wire is one connection on which calls are made by hand, for what no gRPC client can
// do: to have a call under way for certain, and to see whether it ends when the caller
// itself goes on waiting.
type wire struct {
	connection *http2.ClientConn
	patience   time.Duration // with a plugin that does not take a call
}

func (s *session) openWire(ctx context.Context) (*wire, error) {
	raw, err := (&net.Dialer{Timeout: s.Timeout}).DialContext(ctx, "unix", s.address)
	if err != nil {
		return nil, err
	}
	connection, err := (&http2.Transport{AllowHTTP: true, DisableCompression: true}).NewClientConn(raw)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return &wire{connection, s.patience()}, nil
}

func (w *wire) close() { _ = w.connection.Close() }

// isClosed reports whether the plugin has closed the connection.
func (w *wire) isClosed() bool { return w.connection.State().Closed }

// isLeaving reports whether the plugin has said that it takes no more calls on the connection,
// or has closed it.
func (w *wire) isLeaving() bool {
	state := w.connection.State()
	return state.Closing || state.Closed
}

// A pending call is one whose request the plugin has seen the beginning of.
type pending struct {
	rest   []byte
	body   *io.PipeWriter
	ended  chan error
	cancel context.CancelFunc
}

// begin makes a call and sends the first half of its request. When it returns, the plugin
// has taken the call. A deadline is what the plugin is told of one, if it is not zero;
// the call itself lasts until ctx ends.
func (w *wire) begin(ctx context.Context, method string, request proto.Message, deadline time.Duration) (*pending, error) {
	message, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	framed := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	ctx, cancel := context.WithCancel(ctx)
	body, writer := io.Pipe()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v2.KeyManagementService/"+method, body)
	if err != nil {
		cancel()
		return nil, err
	}
	r.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	if deadline > 0 {
		r.Header.Set("Grpc-Timeout", fmt.Sprintf("%dm", deadline.Milliseconds()))
	}
	p := &pending{rest: framed[1:], body: writer, ended: make(chan error, 1), cancel: cancel}
	go func() { p.ended <- w.call(r) }()
	taken := time.AfterFunc(w.patience, cancel)
	defer taken.Stop()
	// The body is written behind the headers, and the answer to a ping comes after both
	// were read.
	_, _ = writer.Write(framed[:1]) // of a call that has ended already, wait tells how
	if err := w.connection.Ping(ctx); err != nil {
		cancel()
		return nil, err
	}
	return p, nil
}

// finish sends the rest of the request.
func (p *pending) finish() {
	_, err := p.body.Write(p.rest)
	_ = p.body.CloseWithError(err) // a call that has ended tells it better
}

var (
	errStillRunning = errors.New("it has not ended")
	errCut          = errors.New("the connection was cut") // and not the call alone
)

// wait is how the call ends, or errStillRunning if it does not.
func (p *pending) wait(patience time.Duration) error {
	defer p.cancel()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-p.ended:
		return err
	case <-timer.C:
		return errStillRunning
	}
}

// A refusal is the gRPC code that a call by hand ended with.
type refusal struct{ code, message string }

func (r refusal) Error() string { return fmt.Sprintf("gRPC code %s: %.300q", r.code, r.message) }

// call sends a request and reads the answer to its end.
func (w *wire) call(r *http.Request) error {
	response, err := w.connection.RoundTrip(r)
	if err != nil {
		return unanswered(r, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return unanswered(r, err)
	}
	for _, trailer := range []http.Header{response.Trailer, response.Header} {
		switch code := trailer.Get("Grpc-Status"); {
		case code == "0" && bytes.HasPrefix(answer, []byte{0}):
			return nil
		case code != "":
			return refusal{code, trailer.Get("Grpc-Message")}
		}
	}
	return fmt.Errorf("an answer without a gRPC code: HTTP %s", response.Status)
}

// unanswered is how a call ends without an answer: by its caller, by itself, or with the
// connection.
func unanswered(r *http.Request, err error) error {
	var alone http2.StreamError
	if r.Context().Err() != nil || errors.As(err, &alone) {
		return err
	}
	return fmt.Errorf("%w: %w", errCut, err)
}
