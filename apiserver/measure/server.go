package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/local"
)

// side is one way of keeping objects at rest.
type side struct {
	name     string
	program  string
	encrypts bool
}

// The names of the sides.
const (
	ours  = "atrest"
	stock = "kube-apiserver"
	none  = "none"
)

func sides() []side {
	return []side{{ours, harness.KubeAPIServer, true}, {stock, harness.StockServer, true}, {none, harness.StockServer, false}}
}

// place is where a server of a side runs, again and again.
type place struct {
	side   side
	prefix string // of its keys in etcd
	config *rest.Config
	log    string
	flags  []string
}

// server is a kube-apiserver in a process of its own.
type server struct {
	*place
	*process
	kube   kubernetes.Interface
	client *http.Client
	probe  *local.Probe
}

const (
	namespace = "default"
	protobuf  = runtime.ContentTypeProtobuf
)

// launch starts a server and does not wait for it.
func (p *place) launch(ctx context.Context) (*server, error) {
	config := rest.CopyConfig(p.config)
	config.ContentType, config.AcceptContentTypes = protobuf, protobuf
	// Compressing a LIST takes longer than everything that is measured here.
	config.DisableCompression = true
	s := &server{place: p}
	var err error
	if s.client, err = rest.HTTPClientFor(config); err != nil {
		return nil, err
	}
	if s.kube, err = kubernetes.NewForConfigAndClient(config, s.client); err != nil {
		return nil, err
	}
	if s.probe, err = local.NewProbe(p.config); err != nil {
		return nil, err
	}
	s.process, err = startProcess(ctx, p.side.program, p.log, p.flags...)
	return s, err
}

// ready waits until the server is.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := s.while(ctx)
	defer cancel()
	if err := s.probe.WaitFor(ctx, "/readyz"); err != nil {
		return fmt.Errorf("start of %s: %w", s.side.name, err)
	}
	return nil
}

// halt stops the server.
func (s *server) halt() {
	s.client.CloseIdleConnections()
	s.stop()
}

// create creates a Secret with 1 KiB of data.
func (s *server) create(ctx context.Context, name string, data []byte) error {
	_, err := s.kube.CoreV1().Secrets(namespace).Create(ctx, secret(name, data), metav1.CreateOptions{})
	return err
}

// update replaces the data of a Secret.
func (s *server) update(ctx context.Context, name string, data []byte) error {
	_, err := s.kube.CoreV1().Secrets(namespace).Update(ctx, secret(name, data), metav1.UpdateOptions{})
	return err
}

func secret(name string, data []byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Data:       map[string][]byte{"data": data},
		Type:       corev1.SecretTypeOpaque,
	}
}

// list reads all Secrets in one answer, without a resourceVersion, and checks that it is
// as long as n of them.
func (s *server) list(ctx context.Context, n int) error {
	answer, err := s.kube.CoreV1().RESTClient().Get().Namespace(namespace).Resource("secrets").Stream(ctx)
	if err != nil {
		return err
	}
	defer answer.Close()
	size, err := io.Copy(io.Discard, answer)
	if err == nil && (size < int64(n)*kib || size > int64(n+1)*2*kib) {
		err = fmt.Errorf("%s lists %d bytes instead of %d Secrets", s.side.name, size, n)
	}
	return err
}

// secretKey is the key of a Secret in etcd.
func (p *place) secretKey(name string) string {
	return p.prefix + "/secrets/" + namespace + "/" + name
}

// stores checks that a Secret lies in etcd as the side is to keep it.
func (s *server) stores(ctx context.Context, l *lab, name string) error {
	found, err := l.stored.Get(ctx, s.secretKey(name))
	if err != nil {
		return err
	}
	want := "k8s\x00"
	if s.side.encrypts {
		want = kmsPrefix
	}
	if len(found.Kvs) != 1 || !bytes.HasPrefix(found.Kvs[0].Value, []byte(want)) {
		return fmt.Errorf("%s does not keep Secrets in etcd as a value that begins with %q", s.side.name, want)
	}
	return nil
}

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// heap is how many bytes of memory the server still has a use for: those left after a
// collection of garbage.
func (s *server) heap(ctx context.Context) (float64, error) {
	var found []string
	for range 2 { // what sync.Pool holds is garbage at the second collection
		status, text, err := s.probe.Get(ctx, "/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return 0, err
		}
		if found = heapAlloc.FindStringSubmatch(text); found == nil {
			return 0, fmt.Errorf("%s gives no profile of its memory: status %d", s.side.name, status)
		}
	}
	return strconv.ParseFloat(found[1], 64)
}

// each does work for 0 to n-1, by many clients at once. A client has each of its numbers
// to itself: i modulo manyClients is never worked on twice at once.
func (s *server) each(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for client := range manyClients {
		g.Go(func() error {
			for i := client; i < n; i += manyClients {
				if err := work(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// fleet is a server of every side, on which a case takes turns.
type fleet []*server

// startFleet starts a server of every side at once and waits until all are ready.
func (l *lab) startFleet(ctx context.Context, sides []side, name string) (f fleet, err error) {
	defer func() {
		if err != nil {
			f.halt()
		}
	}()
	for _, s := range sides {
		p, err := l.place(s, name, l.quick, uncached)
		if err != nil {
			return f, err
		}
		one, err := p.launch(ctx)
		if err != nil {
			return f, err
		}
		f = append(f, one)
	}
	for _, s := range f {
		if err := s.ready(ctx); err != nil {
			return f, err
		}
	}
	return f, nil
}

// halt stops all of them.
func (f fleet) halt() {
	var ended sync.WaitGroup
	for _, s := range f {
		ended.Go(s.halt)
	}
	ended.Wait()
}
