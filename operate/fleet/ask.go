package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/kubeapi"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/observe"
)

// Where a kube-apiserver that is not of this project tells of its encryption.
const (
	metricsPath = "/metrics"
	readyPath   = "/readyz/" + healthz.Name
	// readyOnePath is instead of readyPath where a kube-apiserver does not reload
	// its configuration, with a number from 0.
	readyOnePath = "/readyz/kms-provider-"
	// followsPath is there if it follows its file, whatever providers that has.
	followsPath = "/readyz/poststarthook/start-encryption-provider-config-automatic-reload"
)

// Bounds of what is read.
const (
	maxMetrics   = 64 << 20
	maxText      = 4 << 10 // of an error
	maxProviders = 100
)

// ask has an apiserver tell of itself, and if fresh is true ask its plugins
// first.
func (m *member) ask(ctx context.Context, clk clock.PassiveClock, fresh bool) (rotation.Instance, error) {
	soon, cancel := within(ctx, m.api.Timeout, reachable)
	defer cancel()
	if fresh {
		if i, ok := m.askFresh(soon, clk); ok {
			return i, nil
		}
	}
	resp, err := m.do(soon, http.MethodGet, healthz.Path)
	if err != nil {
		return rotation.Instance{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		return m.told(soon, resp, clk)
	}
	unready, err := m.unready(soon)
	if err != nil {
		return rotation.Instance{}, err
	}
	_, follows, untold := m.ready(soon, followsPath)
	i, err := m.measured(ctx, unready, clk)
	i.Fixed = err == nil && untold == nil && !follows
	return i, err
}

// askFresh has an apiserver ask its plugins and tell of itself then. If it may
// not be told to, or does not know how, it is not told to again. Whatever keeps
// it from answering, what it knows already is asked for next, and that says what
// is wrong: a plugin that hangs takes half of the time at most.
func (m *member) askFresh(ctx context.Context, clk clock.PassiveClock) (i rotation.Instance, ok bool) {
	if m.cannotAsk.Load() {
		return i, false
	}
	ctx, cancel := within(ctx, m.api.Timeout/2, reachable)
	defer cancel()
	resp, err := m.do(ctx, http.MethodPost, healthz.AskPath)
	if err != nil {
		return i, false
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		m.cannotAsk.Store(true)
		return i, false
	}
	i, err = m.told(ctx, resp, clk)
	return i, err == nil
}

// told is what an apiserver of this project answered.
func (m *member) told(ctx context.Context, resp *http.Response, clk clock.PassiveClock) (rotation.Instance, error) {
	if err := m.refused(resp); err != nil {
		return rotation.Instance{}, err
	}
	moment := observe.MomentOf(resp.Header, clk.Now())
	data, err := io.ReadAll(io.LimitReader(resp.Body, healthz.MaxSize+1))
	if err != nil {
		return rotation.Instance{}, fmt.Errorf("%s: %w", healthz.Path, m.failure(ctx, err))
	}
	return observe.Status(data, moment)
}

// measured is what the metrics of a kube-apiserver that is not of this project tell.
// They are long, and have a time of their own.
func (m *member) measured(ctx context.Context, unready string, clk clock.PassiveClock) (rotation.Instance, error) {
	ctx, cancel := within(ctx, m.metrics, "is it up? If it is, give its metrics more time")
	defer cancel()
	resp, err := m.do(ctx, http.MethodGet, metricsPath)
	if err != nil {
		return rotation.Instance{}, err
	}
	defer resp.Body.Close()
	if err := m.refused(resp); err != nil {
		return rotation.Instance{}, err
	}
	body := kubeapi.Bound(resp.Body, maxMetrics)
	i, err := observe.Metrics(body, unready, observe.MomentOf(resp.Header, clk.Now()))
	if cut := ctx.Err(); cut != nil {
		err = cut // the answer may look whole all the same, when the server ends it with the connection
	}
	if err != nil {
		return rotation.Instance{}, m.failure(ctx, err)
	}
	return i, nil
}

// unready is what a kube-apiserver says is wrong with its plugins, empty if
// nothing is.
func (m *member) unready(ctx context.Context) (string, error) {
	said, there, err := m.ready(ctx, readyPath)
	if there || err != nil {
		return said, err
	}
	for n := range maxProviders {
		said, there, err = m.ready(ctx, fmt.Sprint(readyOnePath, n))
		if !there || said != "" || err != nil {
			return said, err
		}
	}
	return "", nil
}

// ready is what one check says, empty if it succeeds, and whether there is such
// a check.
func (m *member) ready(ctx context.Context, path string) (said string, there bool, err error) {
	resp, err := m.do(ctx, http.MethodGet, path)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return "", false, nil
	case resp.StatusCode != http.StatusInternalServerError:
		return "", true, m.refused(resp)
	}
	if said := text(resp.Body); said != "" {
		return said, true, nil
	}
	return path + " says it is not ready", true, nil
}

func (m *member) do(ctx context.Context, method, path string) (*http.Response, error) {
	resp, err := m.api.Open(ctx, method, path)
	if err != nil {
		return nil, m.failure(ctx, err)
	}
	return resp, nil
}

// reachable is what to do about an apiserver that does not answer.
const reachable = "is it up, and can it be reached from here?"

// late is why nothing is waited for any longer, and what to do.
type late struct {
	after  time.Duration
	remedy string
}

func (l *late) Error() string { return "no answer within " + l.after.String() }

func (l *late) Unwrap() error { return context.DeadlineExceeded }

// within bounds what is done by a time, of which [member.failure] tells.
func within(ctx context.Context, d time.Duration, remedy string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, &late{d, remedy})
}

// failure says what to do about an error of a connection.
func (m *member) failure(ctx context.Context, err error) error {
	var distrust *tls.CertificateVerificationError
	var otherName x509.HostnameError
	var cut *url.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		l := &late{m.api.Timeout, reachable}
		errors.As(context.Cause(ctx), &l)
		return fmt.Errorf("no answer from %s within %s: %s", m.api.Base.Host, l.after, l.remedy)
	case errors.As(err, &otherName):
		return fmt.Errorf("%w: give an address that its certificate is for, or say a name that it is for by --tls-server-name", err)
	case errors.As(err, &distrust):
		return fmt.Errorf("%w: check the address and the CA in the kubeconfig", err)
	case errors.As(err, &cut):
		return fmt.Errorf("%w: %s", err, reachable)
	}
	return err
}

// refused is why a question was not answered, with the remedy; nil if it was.
func (m *member) refused(resp *http.Response) error {
	path := resp.Request.URL.Path
	switch {
	case resp.StatusCode == http.StatusOK:
		return nil
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s: 401 Unauthorized: check the credentials in the kubeconfig", path)
	case resp.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s: 403 Forbidden: the user needs the verb get for the nonResourceURLs %s, %s and /readyz/*",
			path, healthz.Path, metricsPath)
	}
	return fmt.Errorf("%s: %s: %s", path, resp.Status, orNothing(text(resp.Body)))
}

func orNothing(said string) string {
	if said == "" {
		return "it says no more"
	}
	return said
}

// text is the beginning of what a server says, in one line.
func text(body io.Reader) string {
	data, _ := io.ReadAll(io.LimitReader(body, maxText)) // as much as there is
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(data), "?")), " ")
}
