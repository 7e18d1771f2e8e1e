// Package traffic is for tests on real servers: Secrets that are written and read through all
// apiservers of a cluster all the while, each read held to what was written, and each request
// that fails to what the test took away meanwhile.
package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	// Namespace is where the Secrets are that have one writer each.
	Namespace = "default"
	// Loops of each kind, and how long each rests after a request.
	writers, readers = 3, 3
	pace             = 30 * time.Millisecond
	// requestTimeout is when a request has failed that nobody answers.
	requestTimeout = 30 * time.Second
	// perWriter is how many Secrets a writer makes.
	perWriter = 40
)

// Load is Secrets being written and read through all apiservers in turn. A request that
// fails has failed, unless something that it needs was away meanwhile because the test
// took it away. It is safe for concurrent use.
type Load struct {
	book    *book
	history *history
	clients []client
	refused *refusals
	stop    chan struct{}
	ended   sync.WaitGroup

	mu       sync.Mutex
	turn     int
	writes   int
	reads    int
	retries  int
	failures []string
	outages  []*outage
}

// client asks one apiserver.
type client struct {
	apiserver string
	secrets   typedcorev1.SecretInterface
	shared    typedcorev1.SecretInterface // those that all contend for
}

// outage is a time at which an apiserver, or all of them if it is empty, could not
// answer, or could not write. It lasts while until is zero.
type outage struct {
	apiserver string
	ofWrites  bool
	until     time.Time
}

// Apiserver is one that requests are made through.
type Apiserver struct {
	Name   string
	Config *rest.Config
}

// Start makes so many Secrets that nobody writes again, and begins with requests. It ends
// with the test at the latest.
func Start(t *testing.T, still int, apiservers ...Apiserver) *Load {
	t.Helper()
	l := &Load{book: newBook(), history: newHistory(), refused: &refusals{}, stop: make(chan struct{})}
	for _, a := range apiservers {
		config := rest.CopyConfig(a.Config)
		config.Timeout = requestTimeout
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.Wrap(l.refused.watch(a.Name))
		kube, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		l.clients = append(l.clients, client{a.Name, kube.CoreV1().Secrets(Namespace), kube.CoreV1().Secrets(sharedNamespace)})
	}
	l.fill(t, still)
	for n := range writers {
		l.ended.Go(func() { l.loop(n, l.write) })
	}
	for n := range readers {
		l.ended.Go(func() { l.loop(n, l.read) })
	}
	for n := range contenders {
		l.ended.Go(func() { l.loop(n, l.contend) })
	}
	t.Cleanup(func() { l.RequireLinearizable(t) })
	return l
}

// fill makes Secrets that only a migration writes again.
func (l *Load) fill(t *testing.T, count int) {
	t.Helper()
	var all errgroup.Group
	all.SetLimit(8)
	for i := range count {
		all.Go(func() error { return l.put(fmt.Sprintf("still-%05d", i)) })
	}
	require.NoError(t, all.Wait())
}

// End returns once there are no more requests.
func (l *Load) End() {
	l.mu.Lock()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.mu.Unlock()
	l.ended.Wait()
}

// loop makes one request after the other.
func (l *Load) loop(n int, request func(n, i int, random *rand.Rand)) {
	random := rand.New(rand.NewPCG(uint64(n), 0))
	rest := time.NewTicker(pace)
	defer rest.Stop()
	for i := 0; ; i++ {
		request(n, i, random)
		select {
		case <-rest.C:
		case <-l.stop:
			return
		}
	}
}

// write makes a Secret, or gives one of those that this loop made a new value.
func (l *Load) write(n, i int, random *rand.Rand) {
	which := i / 2
	if i%2 == 1 || which >= perWriter {
		which = random.IntN(min(which+1, perWriter))
	}
	if l.put(fmt.Sprintf("busy-%d-%d", n, which)) == nil {
		l.count(&l.writes)
	}
}

// put gives a Secret the next value, as its only writer. It says nothing of the version
// that it replaces, so what a migration does to the object meanwhile is no conflict.
func (l *Load) put(name string) error {
	number := l.book.try(name)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"value": value(name, number)}}
	first, again, version := number == 1, false, ""
	err := l.do("write "+name, func(ctx context.Context, c client) error {
		if first {
			call := l.history.now()
			made, err := c.secrets.Create(ctx, secret, metav1.CreateOptions{})
			l.history.add(Namespace+"/"+name, create, number, call, err)
			if !again || !apierrors.IsAlreadyExists(err) {
				again, version = true, made.GetResourceVersion()
				return err
			}
			first = false // an attempt that nobody answered was the one
		}
		call := l.history.now()
		updated, err := c.secrets.Update(ctx, secret, metav1.UpdateOptions{})
		l.history.add(Namespace+"/"+name, update, number, call, err)
		version = updated.GetResourceVersion()
		return err
	})
	if err == nil {
		err = l.book.acknowledge(name, number, version)
	}
	return err
}

// do makes a request of the next apiserver, and of another if that failed during an
// outage.
func (l *Load) do(what string, request func(context.Context, client) error) error {
	for {
		c, from := l.next(), time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		err := request(ctx, c)
		cancel()
		if err == nil {
			return nil
		}
		if !l.excuses(c.apiserver, what, from, err) {
			l.fail("%s %s through %s after %s: %v", from.Format(time.TimeOnly), what, c.apiserver, time.Since(from), err)
			return err
		}
		l.count(&l.retries)
		time.Sleep(pace)
	}
}

// next is the client whose turn it is.
func (l *Load) next() client {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn++
	return l.clients[l.turn%len(l.clients)]
}

// excuses reports whether a request may be repeated. One that was answered with something
// wrong may not.
func (l *Load) excuses(apiserver, what string, from time.Time, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isWrong(err) {
		return false
	}
	reads := strings.HasPrefix(what, "get ") || strings.HasPrefix(what, "list")
	for _, o := range l.outages {
		if reads && o.ofWrites {
			continue
		}
		if (o.apiserver == "" || o.apiserver == apiserver) && (o.until.IsZero() || from.Before(o.until)) {
			return true
		}
	}
	return false
}

// Outage says that an apiserver, or all of them if it is empty, is away until over is
// called.
func (l *Load) Outage(apiserver string) (over func()) {
	return l.away(&outage{apiserver: apiserver})
}

// OutageOfWrites says that nothing can be written until over is called, and all be read.
func (l *Load) OutageOfWrites() (over func()) { return l.away(&outage{ofWrites: true}) }

func (l *Load) away(o *outage) (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outages = append(l.outages, o)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		o.until = time.Now()
	}
}

func (l *Load) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, fmt.Sprintf(format, args...))
}

func (l *Load) count(what *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*what++
}
