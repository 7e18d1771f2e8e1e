package kubeapi

import (
	"fmt"
	"io"
	"net/http"
)

// MaxAnswer bounds the bytes of one answer: a page of objects that all have the most
// annotations there may be.
const MaxAnswer = 256 << 20

// bounded ends an answer that is too long with an error. Half an answer is not that of a
// server with less to tell.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil {
		resp.Body = Bound(resp.Body, MaxAnswer)
	}
	return resp, err
}

// WrappedRoundTripper is who client-go has cancel a request, which else logs that it cannot.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

// Bound fails to read from body what is beyond a number of bytes.
func Bound(body io.ReadCloser, most int64) io.ReadCloser { return &limited{body, most, most} }

type limited struct {
	io.ReadCloser
	left, most int64
}

func (l *limited) Read(p []byte) (int, error) {
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.ReadCloser.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, &tooLong{l.most}
	}
	return n, err
}

// tooLong is why an answer is not read to its end.
type tooLong struct{ most int64 }

func (t *tooLong) Error() string { return fmt.Sprintf("the answer is over %d bytes long", t.most) }
