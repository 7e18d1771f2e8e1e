package lookahead

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxAnswer bounds a page, in bytes. etcd takes no object of more than 1.5 MiB
	// unless told to; one that is larger than this is not looked at.
	maxAnswer = 2 << 20
	// window is how many bytes of an answer etcd sends before it is known whether it
	// is too large. gRPC takes no smaller one.
	window = 64 << 10
	// maxCount is more keys than any etcd has, and few enough to reckon with.
	maxCount = 1 << 32
	// dialTimeout is how long a connection may take to be made.
	dialTimeout = 20 * time.Second
)

// etcd is a store.
type etcd struct {
	client *clientv3.Client
	kv     pb.KVClient // of it, with a bound for each answer
}

// dial makes a client, which connects with its first read. The caller closes it.
func dial(t Target) (etcd, error) {
	config, err := t.tls()
	if err != nil {
		return etcd{}, fmt.Errorf("TLS for etcd: %w", err)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: t.Endpoints, TLS: config, DialTimeout: dialTimeout,
		Logger: zap.NewNop(), // what fails is in the errors
		// gRPC's window would grow, and with it what comes of an answer that is refused.
		DialOptions: []grpc.DialOption{grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(abreast * window)},
	})
	if err != nil {
		return etcd{}, fmt.Errorf("client of etcd: %w", err)
	}
	return etcd{client, clientv3.RetryKVClient(client)}, nil
}

// tls is the configuration that the files make, nil if there are none.
func (t Target) tls() (*tls.Config, error) {
	if t.CertFile == "" && t.CAFile == "" {
		return nil, nil
	}
	return transport.TLSInfo{CertFile: t.CertFile, KeyFile: t.KeyFile, TrustedCAFile: t.CAFile}.ClientConfig()
}

func (e etcd) close() { _ = e.client.Close() } // its only error is that of a context that has ended

// read asks whichever member is near; one that is a little behind does as well.
// It asks for nothing behind the page's part of the keys: etcd counts all the
// keys that it is asked for, which takes longer than to read a few.
func (e etcd) read(ctx context.Context, p part) (page, error) {
	answer, err := e.kv.Range(ctx, &pb.RangeRequest{
		Key: []byte(p.from), RangeEnd: []byte(p.before), Limit: int64(p.limit), CountOnly: p.limit == 0, Serializable: true,
	}, grpc.MaxCallRecvMsgSize(int(p.most)))
	if status.Code(err) == codes.ResourceExhausted {
		return page{}, fmt.Errorf("%w: %w", errTooMuch, err)
	}
	if err != nil {
		return page{}, fmt.Errorf("read from etcd: %w", err)
	}
	objects := page{count: min(max(answer.Count, int64(len(answer.Kvs))), maxCount)}
	for _, kv := range answer.Kvs {
		objects.objects = append(objects.objects, object{string(kv.Key), kv.Value})
	}
	return objects, nil
}
