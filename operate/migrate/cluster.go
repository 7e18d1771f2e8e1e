package migrate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// requestTimeout bounds one request, as kube-apiserver does, unless the configuration
// has a timeout.
const requestTimeout = time.Minute

// Cluster is the API of a Kubernetes cluster. It is safe for concurrent use.
type Cluster struct {
	config *rest.Config
	api    *kubeapi.Client
	clock  clock.Clock

	mu     sync.Mutex
	served []schema.GroupVersionResource // as of the latest look
	looked time.Time
}

// NewCluster is the cluster that c leads to, with its credentials. The limits on
// requests in c do not apply: [Options] has its own. The clock is for waiting.
func NewCluster(c *rest.Config, clk clock.Clock) (*Cluster, error) {
	api, err := kubeapi.New(overHTTP1(c), max(c.Timeout, requestTimeout))
	if err != nil {
		return nil, fmt.Errorf("client for apiserver %s: %w: check the kubeconfig", c.Host, err)
	}
	return &Cluster{config: c, api: api, clock: clk}, nil
}

// overHTTP1 has each worker use a connection of its own. Over HTTP/2 all share one, and
// many small requests take client and apiserver a tenth more of their processors' time.
func overHTTP1(c *rest.Config) *rest.Config {
	if c.Transport != nil || len(c.NextProtos) > 0 {
		return c
	}
	c = rest.CopyConfig(c)
	c.NextProtos = []string{"http/1.1"}
	return c
}

// kind is what an error means for what was asked for.
type kind int

const (
	fine     kind = iota
	gone          // the object is no longer there
	conflict      // it is not as it was
	expired       // a continue token is too old, or of a revision to come
	broken        // the apiserver could not do it
	away          // the apiserver is away or overloaded
	refused       // the apiserver will not do it
	stopped       // the caller no longer wants it
)

func kindOf(ctx context.Context, err error) kind {
	var answer apierrors.APIStatus
	switch {
	case err == nil:
		return fine
	case ctx.Err() != nil:
		return stopped
	case !errors.As(err, &answer):
		return away
	case apierrors.IsNotFound(err):
		return gone
	case apierrors.IsConflict(err):
		return conflict
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return expired
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err),
		answer.Status().Code == http.StatusBadGateway:
		return away
	case answer.Status().Code >= 500:
		return broken
	}
	return refused
}
