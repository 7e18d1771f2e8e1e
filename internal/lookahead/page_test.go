package lookahead

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// numbered are keys in their order.
func numbered(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("%sdefault/secret-%06d", prefix, i))
	}
	return keys
}

// answersOf has the size of each answer noted.
func answersOf(o interface{ After(func(*pb.RangeResponse)) }) func() []int {
	var sizes []int
	o.After(func(r *pb.RangeResponse) { sizes = append(sizes, proto.Size(protoadapt.MessageV2Of(r))) })
	return func() []int { return sizes }
}

func TestReadsAskWhicheverMemberIsNearForLittle(t *testing.T) {
	server, _ := objectsOf(numbered(5000), func(i int) int { return i }).serve(t)
	require.NotEmpty(t, found(t, server))
	for _, r := range server.Requests() {
		require.True(t, r.Serializable)
		require.Zero(t, r.SortOrder, "etcd would read all of it to sort it")
		require.Positive(t, r.Limit)
		require.LessOrEqual(t, r.Limit, int64(maxPage))
		require.LessOrEqual(t, string(r.RangeEnd), following(prefix))
		require.Greater(t, string(r.RangeEnd), prefix)
	}
	require.Equal(t, int64(1), server.Requests()[0].Limit, "nothing is known of the size of objects")
}

func TestPagesOfLargeObjectsAreSmall(t *testing.T) {
	o := objectsOf(numbered(400), func(i int) int { return i })
	o.size = 32 << 10
	server, all := o.serve(t)
	sizes := answersOf(server)
	deks := found(t, server)
	require.Greater(t, len(deks), 20)
	require.LessOrEqual(t, server.Served(), all/share+spareBytes+pageBytes)
	for _, size := range sizes() {
		require.Less(t, size, pageBytes+4096)
	}
}

func TestObjectsOfAMegabyteAreReadOneByOne(t *testing.T) {
	o := objectsOf(numbered(60), func(i int) int { return i })
	o.size = 1 << 20
	server, all := o.serve(t)
	require.NotEmpty(t, found(t, server))
	for _, r := range server.Requests() {
		require.True(t, r.Limit == 1 || r.CountOnly)
	}
	require.LessOrEqual(t, server.Served(), all/share+abreast*(o.bytes()+framing), "what is refused is not all sent, but written")
}

// Nothing tells that the objects behind the small ones are large, and to read
// them would cost more than what is known of allows.
func TestLargeObjectsAmongSmallOnesArePassedOver(t *testing.T) {
	server, _ := objectsOf(numbered(2000), func(i int) int { return i }).serve(t)
	for i := range 3 {
		server.Store(fmt.Sprintf("%sdefault/secret-%06d", prefix, 500+500*i), sealed(10_000+i, 1<<20))
	}
	deks := found(t, server)
	require.Greater(t, len(deks), 50)
	require.Less(t, slices.Max(deks), 10_000)
}

func TestAnObjectThatIsTooMuchIsPassedOver(t *testing.T) {
	server, _ := objectsOf(numbered(100), func(i int) int { return i }).serve(t)
	server.Store(prefix+"default/secret-000050", sealed(10_000, maxAnswer))
	require.NotContains(t, found(t, server), 10_000)

	server.Store(prefix+"a", sealed(10_000, maxAnswer))
	require.Empty(t, found(t, server), "nothing is known of what is behind the first")
}

// etcd reads and writes all of an answer before it is known to be too large, and
// large objects stand in runs.
func TestAfterAnAnswerThatIsTooMuchFewerObjectsAreAskedFor(t *testing.T) {
	s := newSearch(&shelf{objects: objectsOf(numbered(1), func(i int) int { return i })}, 1<<20, new(atomic.Int64))
	next := func() probe {
		s.budget = budget{spare: s.spare}
		s.spare.Store(mostBytes)
		s.gaps = []gap{{after: prefix + "a", before: prefix + "b", count: 1 << 20, size: 300, limit: maxPage}}
		return s.heaviest()[0]
	}
	p := next()
	require.Equal(t, maxPage, p.limit)
	for _, limit := range []int{32, 16, 8, 4, 2, 1, 1} {
		s.take(p, answer{page{}, true}, nil)
		p = next()
		require.Equal(t, limit, p.limit)
	}
	for limit := 2; limit <= maxPage; limit++ {
		s.take(p, answer{}, nil)
		p = next()
		require.Equal(t, limit, p.limit)
	}
	s.take(p, answer{}, nil)
	require.Equal(t, maxPage, next().limit)
}

// What etcd answers is from outside.
func TestAnswersThatMakeNoSense(t *testing.T) {
	for name, spoil := range map[string]func(*pb.RangeResponse){
		"no objects, but a count": func(r *pb.RangeResponse) { r.Kvs = nil },
		"objects, but no count":   func(r *pb.RangeResponse) { r.Count = 0 },
		"a negative count":        func(r *pb.RangeResponse) { r.Count = -1 },
		"more than there can be":  func(r *pb.RangeResponse) { r.Count = 1 << 62 },
		"always the same key": func(r *pb.RangeResponse) {
			r.Kvs = []*mvccpb.KeyValue{{Key: []byte(prefix + "a"), Value: sealed(1, 1)}}
		},
		"keys of another resource": func(r *pb.RangeResponse) { r.Kvs = []*mvccpb.KeyValue{{Key: []byte("/z"), Value: sealed(1, 1)}} },
		"no key":                   func(r *pb.RangeResponse) { r.Kvs = []*mvccpb.KeyValue{{Value: sealed(1, 1)}} },
		"no value":                 func(r *pb.RangeResponse) { r.Kvs = []*mvccpb.KeyValue{{Key: []byte(prefix + "a")}} },
	} {
		t.Run(name, func(t *testing.T) {
			server, _ := objectsOf(numbered(1000), func(i int) int { return i % 10 }).serve(t)
			server.After(spoil)
			found(t, server)
			require.LessOrEqual(t, len(server.Requests()), mostPages+abreast)
		})
	}
}

func TestObjectsThatGoMeanwhileAreNotMissed(t *testing.T) {
	server, _ := objectsOf(numbered(1000), func(i int) int { return i }).serve(t)
	var reads atomic.Int64 // several are under way at once
	server.Before(func(*pb.RangeRequest) error {
		if reads.Add(1) == 5 {
			for i := range 900 {
				server.Delete(fmt.Sprintf("%sdefault/secret-%06d", prefix, 50+i))
			}
		}
		return nil
	})
	require.NotEmpty(t, found(t, server))
	require.Less(t, len(server.Requests()), 1000, "nor looked for again and again")
}

func TestASmallResourceIsReadInFewPages(t *testing.T) {
	server, _ := objectsOf(numbered(100), func(i int) int { return i }).serve(t)
	require.Len(t, found(t, server), 100)
	require.Less(t, len(server.Requests()), 35)
}

// meeting answers when as many reads are under way as are to meet.
type meeting struct {
	*shelf
	missing sync.WaitGroup
}

func (m *meeting) read(ctx context.Context, p part) (page, error) {
	m.missing.Done()
	m.missing.Wait()
	return m.shelf.read(ctx, p)
}

func TestPagesAreReadSomeAtATime(t *testing.T) {
	store := &meeting{shelf: &shelf{objects: objectsOf(numbered(5000), func(i int) int { return i })}}
	var spare atomic.Int64
	spare.Store(abreast * pageBytes)
	s := newSearch(store, 1<<20, &spare)
	for i := range 2 * abreast {
		s.gaps = append(s.gaps, gap{after: store.keys[600*i], before: store.keys[600*i+500], count: 499, size: store.bytes(), limit: minPage})
	}
	probes := s.heaviest()
	require.Len(t, probes, abreast)
	store.missing.Add(abreast)
	answers, err := s.readAll(t.Context(), probes)
	require.NoError(t, err)
	for _, a := range answers {
		require.Len(t, a.objects, minPage)
	}
}

func TestTheLastRoundKeepsToWhatIsLeft(t *testing.T) {
	for _, size := range []int{300, 3000, 8000} {
		store := &shelf{objects: objectsOf(numbered(2000), func(i int) int { return i })}
		store.size = size
		s := newSearch(store, 1<<20, new(atomic.Int64))
		for range s.values(t.Context(), prefix, following(prefix)) {
		}
		most := 2000 * store.bytes() / share
		require.LessOrEqual(t, store.served.Load(), most+abreast*(store.bytes()+framing)+most/10)
		require.Greater(t, store.served.Load(), most*9/10)
	}
}

func TestNoMoreDEKsAreFoundThanAreKept(t *testing.T) {
	server, _ := objectsOf(numbered(5000), func(i int) int { return i }).serve(t)
	f := scout(t, Options{MostDEKs: 100})
	f.Look(target(server))
	f.ended.Wait()
	require.GreaterOrEqual(t, len(f.deks), 100)
	require.LessOrEqual(t, len(f.deks), 100+abreast*maxPage, "the pages under way are looked at to their end")
}
