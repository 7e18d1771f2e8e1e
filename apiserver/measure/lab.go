package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproto "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/local"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/measure"
	"github.com/kube-atrest/atrest/internal/stored"
)

const (
	kib = 1024
	// startTimeout bounds the start of a program.
	startTimeout = 2 * time.Minute
	// slowAnswer is how long the plugin of a starting server takes to unwrap a key.
	slowAnswer = 20 * time.Millisecond
	// providerName is the name of the KMS provider in the EncryptionConfigurations.
	providerName = "measured"
	// atOnce is how many keys are put into etcd in one transaction; it takes 128.
	atOnce = 100
)

// kmsPrefix is what values of both sides that encrypt begin with.
var kmsPrefix = stored.KMSv2.PrefixFor(providerName)

// lab is the place where servers are measured: one etcd, the plugins, and a folder. Not
// for concurrent use.
type lab struct {
	folder string
	etcd   *process
	// stored is a client of the etcd.
	stored *clientv3.Client
	// quick answers at once, slow takes slowAnswer to unwrap. Both have the same keys.
	quick, slow *measure.Plugin
}

// newLab starts the etcd and the plugins. The caller closes the lab.
func newLab(ctx context.Context) (_ *lab, err error) {
	folder, err := os.MkdirTemp("", "atrest-") // a short name: a socket's has to fit into about 100 bytes
	if err != nil {
		return nil, err
	}
	l := &lab{folder: folder}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.quick, l.slow, err = measure.StartPlugins(ctx, folder, slowAnswer); err != nil {
		return nil, err
	}
	return l, l.startEtcd(ctx)
}

func (l *lab) startEtcd(ctx context.Context) (err error) {
	// It stops when the lab is closed, after the servers that need it.
	if l.etcd, err = startProcess(context.WithoutCancel(ctx), harness.EtcdMember, l.file("etcd.log"), l.file("etcd"), l.folder); err != nil {
		return err
	}
	l.stored, err = clientv3.New(clientv3.Config{
		Context: context.WithoutCancel(ctx), Endpoints: []string{l.etcdEndpoint()}, DialTimeout: startTimeout, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	ctx, cancel := l.etcd.while(ctx)
	defer cancel()
	for {
		_, err := l.stored.Get(ctx, "/") // which waits and tries for a while itself
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for etcd: %w", context.Cause(ctx))
		}
	}
}

func (l *lab) etcdEndpoint() string { return etcd.Options{SocketDir: l.folder}.Endpoint() }

func (l *lab) file(name string) string { return filepath.Join(l.folder, name) }

// compact has etcd forget what was overwritten, so that nobody pays for the writes of
// others.
func (l *lab) compact(ctx context.Context) error {
	now, err := l.stored.Get(ctx, "/", clientv3.WithCountOnly())
	if err == nil {
		_, err = l.stored.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

var sentBytes = regexp.MustCompile(`(?m)^etcd_network_client_grpc_sent_bytes_total (\S+)$`)

// sent is how many bytes etcd has sent to all its clients so far.
func (l *lab) sent(ctx context.Context) (float64, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(l.etcdEndpoint(), "unix://"))
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("metrics of etcd: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	found := sentBytes.FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("the metrics of etcd do not say what it has sent: %w", errors.Join(err, errors.New(answer.Status)))
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// place prepares a server of this side. Servers of one name and side find the same
// objects in etcd.
func (l *lab) place(s side, name string, p *measure.Plugin, flags ...string) (*place, error) {
	folder := l.file(name + "-" + s.name)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	// The address was free a moment ago: kube-apiserver does not take port 0.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if err := listener.Close(); err != nil {
		return nil, err
	}
	cluster, err := local.Prepare(folder, listener.Addr().String())
	if err != nil {
		return nil, err
	}
	all, err := cluster.Flags(l.etcdEndpoint())
	if err != nil {
		return nil, err
	}
	prefix := "/" + name + "/" + s.name
	all = append(append(all, "--etcd-prefix="+prefix), flags...)
	if s.encrypts {
		config := filepath.Join(folder, "encryption.yaml")
		if err := os.WriteFile(config, encryption(p), 0o600); err != nil {
			return nil, err
		}
		all = append(all, "--encryption-provider-config="+config)
	}
	return &place{side: s, prefix: prefix, config: cluster.Config(), log: filepath.Join(folder, "log"), flags: all}, nil
}

// encryption is the EncryptionConfiguration of both sides that encrypt. The timeout is a
// patient one: on a busy machine a plugin that answers in 20 ms may seem to need seconds.
func encryption(p *measure.Plugin) []byte {
	return fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: %s, endpoint: %q, timeout: 10s}
  - identity: {}
`, providerName, p.Endpoint)
}

// fill puts Secrets straight into etcd, as the server of this place would have stored
// them, under so many DEKs. They come in an order that has nothing to do with their names,
// as in a store that was written over months: neighbours are under different DEKs.
func (l *lab) fill(ctx context.Context, p *place, n, deks int) error {
	keep := measure.Seal(func(_ context.Context, plaintext []byte, _ string) ([]byte, error) { return plaintext, nil })
	if p.side.encrypts {
		seal, end, err := l.quick.Sealer(ctx, providerName, envelope.Counter, (n+deks-1)/deks)
		if err != nil {
			return err
		}
		defer end()
		keep = seal
	}
	var puts []clientv3.Op
	for done, i := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		name := secretName(i)
		plaintext, err := encoded(name, uint64(i))
		if err != nil {
			return err
		}
		kept, err := keep(ctx, plaintext, p.secretKey(name))
		if err != nil {
			return err
		}
		if puts = append(puts, clientv3.OpPut(p.secretKey(name), string(kept))); len(puts) == atOnce || done == n-1 {
			if _, err := l.stored.Txn(ctx).Then(puts...).Commit(); err != nil {
				return fmt.Errorf("put Secrets into etcd: %w", err)
			}
			puts = nil
		}
	}
	return nil
}

// encoded is a Secret in the form in which an apiserver stores it.
func encoded(name string, seed uint64) ([]byte, error) {
	s := secret(name, data(seed))
	s.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", seed))
	s.CreationTimestamp = metav1.NewTime(time.Unix(1_700_000_000, 0))
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "measure", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &s.CreationTimestamp,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{".":{},"f:data":{}},"f:type":{}}`)}}
	var b bytes.Buffer
	err := kubeproto.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(s, &b)
	return b.Bytes(), err
}

// data is 1 KiB that does not compress; the same seed gives the same data.
func data(seed uint64) []byte {
	made := make([]byte, kib)
	random := rand.New(rand.NewPCG(seed, 1))
	for i := range made {
		made[i] = byte(random.Uint32())
	}
	return made
}

// close ends everything and removes the folder.
func (l *lab) close() error {
	if l.stored != nil {
		_ = l.stored.Close() // its only error is the cancelled context that closing it causes
	}
	if l.etcd != nil {
		l.etcd.stop()
	}
	l.quick.Stop()
	l.slow.Stop()
	return os.RemoveAll(l.folder)
}
