package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	// requestTimeout bounds one request, as kube-apiserver does.
	requestTimeout = time.Minute
	// maxResponse bounds the bytes of one answer: a page of objects that all
	// have the most annotations there may be.
	maxResponse = 256 << 20
)

// Cluster is the API of a Kubernetes cluster. It is safe for concurrent use.
type Cluster struct {
	base    *url.URL
	client  *http.Client
	clock   clock.Clock
	timeout time.Duration
}

// NewCluster is the cluster that c leads to, with its credentials. The limits on
// requests in c do not apply: [Options] has its own. The clock is for waiting.
func NewCluster(c *rest.Config, clk clock.Clock) (*Cluster, error) {
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client for apiserver %s: %w: check the kubeconfig", c.Host, err)
	}
	base, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return nil, fmt.Errorf("client for apiserver %s: %w: check the kubeconfig", c.Host, err)
	}
	cluster := &Cluster{base: base, client: client, clock: clk, timeout: requestTimeout}
	if c.Timeout > 0 {
		cluster.timeout = c.Timeout
	}
	return cluster, nil
}

// request is one request to the API.
type request struct {
	method string
	// path has its segments, which may hold any characters.
	path  []string
	query url.Values
	// accept and contentType are media types; plain JSON if empty.
	accept, contentType string
	body                any
}

// answer is an error that an apiserver answered with, and for how long it wants
// to be left alone.
type answer struct {
	*apierrors.StatusError
	retryAfter time.Duration
}

func (a *answer) Unwrap() error { return a.StatusError }

// do sends a request and decodes the answer into out, if that is not nil. An
// error of the apiserver is an [*answer], and any other means that it is not
// known whether the request had an effect.
func (c *Cluster) do(ctx context.Context, r request, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req, err := c.build(ctx, r)
	if err != nil {
		return err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return fmt.Errorf("answer to %s %s: %w", r.method, req.URL.Path, err)
	case len(data) > maxResponse:
		return fmt.Errorf("answer to %s %s is over %d bytes long: ask for smaller pages", r.method, req.URL.Path, maxResponse)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return refusal(r.method, resp, data)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("answer to %s %s is not what an apiserver says: %w", r.method, req.URL.Path, err)
	}
	return nil
}

func (c *Cluster) build(ctx context.Context, r request) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	escaped := make([]string, 0, len(r.path))
	for _, segment := range r.path {
		escaped = append(escaped, url.PathEscape(segment))
	}
	at := c.base.JoinPath(escaped...)
	at.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, at.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", orJSON(r.accept))
	if body != nil {
		req.Header.Set("Content-Type", orJSON(r.contentType))
	}
	return req, nil
}

func orJSON(mediaType string) string {
	if mediaType == "" {
		return "application/json"
	}
	return mediaType
}

// refusal is what an answer that is no success says.
func refusal(method string, resp *http.Response, data []byte) error {
	a := &answer{}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.retryAfter = time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	}
	var status metav1.Status
	if json.Unmarshal(data, &status) == nil && status.Kind == "Status" && status.Code != 0 {
		a.StatusError = &apierrors.StatusError{ErrStatus: status}
		return a
	}
	said := http.StatusText(resp.StatusCode)
	a.StatusError = apierrors.NewGenericServerResponse(resp.StatusCode, method, schema.GroupResource{}, resp.Request.URL.Path, said, 0, true)
	return a
}

// kind is what an error means for what was asked for.
type kind int

const (
	fine     kind = iota
	gone          // the object is no longer there
	conflict      // it is not as it was
	expired       // a continue token is too old
	broken        // the apiserver could not do it
	away          // the apiserver is away or overloaded
	refused       // the apiserver will not do it
	stopped       // the caller no longer wants it
)

func kindOf(ctx context.Context, err error) kind {
	var a *answer
	switch {
	case err == nil:
		return fine
	case ctx.Err() != nil:
		return stopped
	case !errors.As(err, &a):
		return away
	case apierrors.IsNotFound(a):
		return gone
	case apierrors.IsConflict(a):
		return conflict
	case apierrors.IsResourceExpired(a), apierrors.IsGone(a):
		return expired
	case apierrors.IsTooManyRequests(a), apierrors.IsServerTimeout(a), apierrors.IsTimeout(a), apierrors.IsServiceUnavailable(a),
		a.ErrStatus.Code == http.StatusBadGateway:
		return away
	case a.ErrStatus.Code >= 500:
		return broken
	}
	return refused
}
