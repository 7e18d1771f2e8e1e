package local

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

const (
	probeInterval = 50 * time.Millisecond
	probeTimeout  = 5 * time.Second
	// maxProbeBody bounds what is kept of an answer; all metrics of a server are a few
	// megabytes.
	maxProbeBody = 16 << 20
)

// Probe asks a kube-apiserver for paths such as /readyz. It may be used concurrently.
type Probe struct {
	client *http.Client
	host   string
}

// NewProbe returns a probe with the credentials in config.
func NewProbe(config *rest.Config) (*Probe, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("probe of %s: %w", config.Host, err)
	}
	client.Timeout = probeTimeout
	return &Probe{client: client, host: config.Host}, nil
}

// Get returns the status and the text that path answers with, whatever they are. An error
// means no answer.
func (p *Probe) Get(ctx context.Context, path string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.host+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxProbeBody))
	if err != nil {
		return 0, "", err
	}
	return response.StatusCode, strings.TrimSpace(string(body)), nil
}

// WaitFor returns as soon as path answers 200, or with the last answer when ctx ends
// first.
func (p *Probe) WaitFor(ctx context.Context, path string) error {
	last := "no answer"
	err := wait.PollUntilContextCancel(ctx, probeInterval, true, func(ctx context.Context) (bool, error) {
		status, text, err := p.Get(ctx, path)
		switch {
		case ctx.Err() != nil: // the last answer says more than the end of the wait
		case err != nil:
			last = err.Error()
		default:
			last = fmt.Sprintf("%d %s", status, text)
		}
		return status == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("%s is not ok (%w); last answer: %s", path, context.Cause(ctx), last)
	}
	return nil
}
