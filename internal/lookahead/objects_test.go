package lookahead

import (
	"cmp"
	"context"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/internal/stored"
)

const prefix = "/registry/secrets/"

// sealed is a value with so many bytes of data under a DEK of a number.
func sealed(dek, size int) []byte {
	value := stored.AppendDataHead([]byte(stored.KMSv2.PrefixFor("test")), size)
	value = append(append(value, make([]byte, size)...), "sealed DEK "...)
	number := strconv.Itoa(dek)
	return append(append(value, strings.Repeat("0", 80-len(number))...), number...)
}

// dekOf is the number of a value's DEK.
func dekOf(t testing.TB, value []byte) int {
	_, number, _ := strings.Cut(string(value), "sealed DEK ")
	dek, err := strconv.Atoi(number)
	require.NoError(t, err)
	return dek
}

// objects are stored ones, in the order of their keys.
type objects struct {
	keys []string
	deks []int
	size int // of their data
	// large, if set, is that of one of them; 0 for size.
	large func(i int) int
}

func (o objects) sizeOf(i int) int {
	if o.large == nil {
		return o.size
	}
	return cmp.Or(o.large(i), o.size)
}

// objectsOf gives keys the DEKs that a function of their place in the order says.
func objectsOf(keys []string, dek func(i int) int) objects {
	slices.Sort(keys)
	o := objects{keys: slices.Compact(keys), size: 300}
	for i := range o.keys {
		o.deks = append(o.deks, dek(i))
	}
	return o
}

// distinct is how many DEKs there are.
func (o objects) distinct() int {
	all := slices.Clone(o.deks)
	slices.Sort(all)
	return len(slices.Compact(all))
}

// bytes is how large an object is, about.
func (o objects) bytes() int64 { return int64(len(o.keys[0]) + len(sealed(0, o.size)) + framing) }

// serve puts the objects into an etcd, and says how many bytes it takes to read all.
func (o objects) serve(t testing.TB) (*etcdtest.Server, int64) {
	server := etcdtest.Start(t)
	all := int64(0)
	for i, key := range o.keys {
		value := sealed(o.deks[i], o.sizeOf(i))
		server.Store(key, value)
		all += int64(len(key) + len(value))
	}
	return server, all
}

// random is the same for every run.
func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// name is one of so many bytes, as Kubernetes generates them.
func name(r *rand.Rand, size int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, size)
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}

// finds is a Scout, and what it found.
type finds struct {
	*Scout
	mu   sync.Mutex
	deks []int // in the order in which they were found
	log  klog.Logger
}

// scout looks until the test ends. Options that are not set are the usual ones.
func scout(t testing.TB, o Options) *finds {
	f := &finds{}
	f.log = ktesting.NewLogger(quiet{t}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(1)))
	o.Logger = f.log
	if o.Warm == nil {
		o.Warm = func(_ context.Context, values iter.Seq[[]byte]) int { return f.take(t, values) }
	}
	if o.MostDEKs == 0 {
		o.MostDEKs = 1 << 20
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	f.Scout = New(o)
	t.Cleanup(f.Close)
	return f
}

// quiet keeps the log out of the test's output.
type quiet struct{ testing.TB }

func (quiet) Log(...any) {}

func (f *finds) take(t testing.TB, values iter.Seq[[]byte]) (n int) {
	for value := range values {
		f.mu.Lock()
		f.deks = append(f.deks, dekOf(t, value))
		f.mu.Unlock()
		n++
	}
	return n
}

func (f *finds) logged() string { return f.log.GetSink().(ktesting.Underlier).GetBuffer().String() }

// found looks through an etcd to the end, and gives the DEKs.
func found(t testing.TB, server *etcdtest.Server) []int {
	f := scout(t, Options{})
	f.Look(target(server))
	f.ended.Wait()
	return f.deks
}

func target(server *etcdtest.Server) Target {
	return Target{Resource: "secrets", Prefix: prefix, Endpoints: []string{server.Endpoint()}}
}
