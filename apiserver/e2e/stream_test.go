package e2e

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

const (
	writers = 4
	// many is how many writes are awaited between two events.
	many = 40
	// writeTimeout is when a writer gives up. What it then tried may have been done or
	// not.
	writeTimeout = 3 * time.Second
)

// stream is Secrets being written, whatever happens to the servers.
type stream struct {
	client typedcorev1.SecretInterface
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu           sync.Mutex
	tried        map[string]outcome
	acknowledged int
	refused      int
}

// outcome is what is known of one Secret.
type outcome struct {
	// values are those that it may have: the last that was acknowledged, and what was
	// tried since.
	values       []string
	acknowledged bool
}

// streamSecrets begins to write through s. It ends with the test at the latest.
func streamSecrets(t *testing.T, s *harness.Server) *stream {
	t.Helper()
	config := rest.CopyConfig(s.Config)
	config.Timeout = writeTimeout
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	w := &stream{client: kube.CoreV1().Secrets(namespace), cancel: cancel, tried: map[string]outcome{}}
	for n := range writers {
		w.ended.Go(func() { w.write(ctx, n) })
	}
	t.Cleanup(w.end)
	return w
}

// end returns once nothing more is written.
func (w *stream) end() {
	w.cancel()
	w.ended.Wait()
}

// write creates one Secret after the other, and updates each once.
func (w *stream) write(ctx context.Context, writer int) {
	pace := time.NewTicker(tick / 4)
	defer pace.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("stream-%d-%d", writer, n)}}
		secret, err := w.put(ctx, secret, w.create)
		if err == nil {
			_, _ = w.put(ctx, secret, w.update) // put has kept book of it
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
}

// request is a create or an update.
type request func(context.Context, *corev1.Secret) (*corev1.Secret, error)

func (w *stream) create(ctx context.Context, s *corev1.Secret) (*corev1.Secret, error) {
	return w.client.Create(ctx, s, metav1.CreateOptions{})
}

func (w *stream) update(ctx context.Context, s *corev1.Secret) (*corev1.Secret, error) {
	return w.client.Update(ctx, s, metav1.UpdateOptions{})
}

// put gives a Secret a new value and keeps book of it.
func (w *stream) put(ctx context.Context, s *corev1.Secret, do request) (*corev1.Secret, error) {
	name, value := s.Name, fmt.Sprintf("%s %s after version %q", password, s.Name, s.ResourceVersion)
	s.Data = map[string][]byte{"password": []byte(value)}
	w.keep(func() {
		before := w.tried[name]
		w.tried[name] = outcome{values: append(before.values, value), acknowledged: before.acknowledged}
	})
	done, err := do(ctx, s)
	w.keep(func() {
		if err != nil {
			w.refused++
			return
		}
		w.tried[name] = outcome{values: []string{value}, acknowledged: true}
		w.acknowledged++
	})
	return done, err
}

func (w *stream) keep(book func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	book()
}

// requireAcknowledged returns once many more writes were acknowledged.
func (w *stream) requireAcknowledged(t *testing.T) {
	t.Helper()
	w.requireMore(t, "writes are acknowledged", &w.acknowledged, many)
}

// requireRefused returns once each writer may have failed.
func (w *stream) requireRefused(t *testing.T) {
	t.Helper()
	w.requireMore(t, "writes are refused", &w.refused, writers)
}

func (w *stream) requireMore(t *testing.T, what string, count *int, more int) {
	t.Helper()
	read := func() (n int) {
		w.keep(func() { n = *count })
		return n
	}
	wanted := read() + more
	until(t, what, func() bool { return read() >= wanted })
}

// wanted is what is known of every Secret.
func (w *stream) wanted() (all map[string]outcome) {
	w.keep(func() { all = maps.Clone(w.tried) })
	return all
}
