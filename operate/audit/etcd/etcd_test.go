package etcd_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/audit/etcd"
)

func dial(t testing.TB, o etcd.Options) *etcd.Store {
	t.Helper()
	s, err := etcd.Dial(o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// stored is a server with n objects of a size.
func stored(t testing.TB, n, size int) *etcdtest.Server {
	server := etcdtest.Start(t)
	for i := range n {
		server.Store(fmt.Sprintf("/registry/secrets/%06d", i), []byte(strings.Repeat("v", size)))
	}
	return server
}

// read walks a prefix and gives its objects in their order.
func read(t testing.TB, s *etcd.Store, prefix string) (keys []string, values map[string]string, err error) {
	t.Helper()
	contents, err := s.Read(t.Context(), prefix)
	if err != nil {
		return nil, nil, err
	}
	values = map[string]string{}
	for object, err := range contents.Objects {
		if err != nil {
			return keys, values, err
		}
		keys = append(keys, object.Key)
		values[object.Key] = string(object.Value)
	}
	require.Len(t, keys, int(contents.Total))
	return keys, values, nil
}

func TestAPrefixIsReadInPages(t *testing.T) {
	server := stored(t, 5000, 10)
	server.Store("/registry2/secrets/x", []byte("not of the prefix"))
	server.Store("/registry", []byte("nor this"))
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}})
	keys, values, err := read(t, s, "/registry/")
	require.NoError(t, err)
	require.Len(t, keys, 5000)
	require.Len(t, values, 5000, "each once")
	require.IsIncreasing(t, keys)
	requests := server.Requests()
	require.Greater(t, len(requests), 5)
	for _, r := range requests {
		require.LessOrEqual(t, r.Limit, int64(1000))
		require.True(t, r.CountOnly || r.Limit > 0)
	}
}

func TestPagesOfLargeObjectsAreSmall(t *testing.T) {
	server := stored(t, 100, 256<<10)
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}})
	keys, _, err := read(t, s, "/registry/")
	require.NoError(t, err)
	require.Len(t, keys, 100)
	for _, r := range server.Requests()[2:] {
		require.LessOrEqual(t, r.Limit, int64(8), "2 MiB")
	}
}

func TestAPageThatIsTooMuchIsAskedForInParts(t *testing.T) {
	server := stored(t, 100, 1<<20)
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}})
	keys, _, err := read(t, s, "/registry/")
	require.NoError(t, err, "50 MiB would be the first page")
	require.Len(t, keys, 100)
}

func TestAnObjectThatIsTooMuchIsAnError(t *testing.T) {
	server := stored(t, 1, 33<<20)
	_, _, err := read(t, dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}}), "/registry/")
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}

func TestAWalkIsOfOneRevision(t *testing.T) {
	server := stored(t, 500, 10)
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}})
	contents, err := s.Read(t.Context(), "/registry/")
	require.NoError(t, err)
	require.Equal(t, int64(501), contents.Revision)
	seen := 0
	for object, err := range contents.Objects {
		require.NoError(t, err)
		require.Equal(t, "vvvvvvvvvv", string(object.Value))
		seen++
		if seen == 10 { // within the first page
			server.Store("/registry/secrets/000400", []byte("later"))
			server.Store("/registry/secrets/new", []byte("later"))
			server.Delete("/registry/secrets/000300")
		}
	}
	require.Equal(t, 500, seen)
}

func TestACompactedRevisionEndsTheWalk(t *testing.T) {
	server := stored(t, 500, 10)
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}})
	contents, err := s.Read(t.Context(), "/registry/")
	require.NoError(t, err)
	seen := 0
	for object, err := range contents.Objects {
		if err != nil {
			require.ErrorIs(t, err, etcd.ErrCompacted)
			require.ErrorContains(t, err, "read one resource at a time")
			require.Empty(t, object)
			require.Equal(t, 50, seen)
			return
		}
		seen++
		if seen == 50 {
			server.Store("/registry/secrets/new", nil)
			server.DropHistory()
		}
	}
	t.Fatal("no error")
}

func TestAnswersThatWouldNeverEnd(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*pb.RangeResponse)
		want  string
	}{
		"the same page again": {func(r *pb.RangeResponse) {
			r.More = true
			for _, kv := range r.Kvs {
				kv.Key = []byte("/registry/a")
			}
		}, "not in order"},
		"nothing, and more to come": {func(r *pb.RangeResponse) { r.Kvs, r.More = nil, true }, "more are to come"},
		"no revision":               {func(r *pb.RangeResponse) { r.Header = nil }, "no revision"},
	} {
		server := stored(t, 10, 10)
		server.After(c.spoil)
		_, _, err := read(t, dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}}), "/registry/")
		require.ErrorContains(t, err, c.want, name)
		require.ErrorContains(t, err, "is that etcd's API v3?", name)
	}
}

func TestAWalkCanBeStopped(t *testing.T) {
	server := stored(t, 500, 10)
	contents, err := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}}).Read(t.Context(), "/registry/")
	require.NoError(t, err)
	for range contents.Objects {
		break
	}
	require.Len(t, server.Requests(), 2, "the count and a page")
}

func TestAnEmptyPrefixIsEveryKey(t *testing.T) {
	server := stored(t, 300, 10)
	for _, key := range []string{"\x00", "/", "\xff\xff", "compact_rev_key"} {
		server.Store(key, []byte("other"))
	}
	keys, _, err := read(t, dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}}), "")
	require.NoError(t, err)
	require.Len(t, keys, 304)
}

// A typo, or a member that was restored into a cluster of its own: when the one is
// away for a moment the other answers.
func TestTheEndpointsAreOfOneCluster(t *testing.T) {
	one, other := stored(t, 100, 10), stored(t, 100, 10)
	n := 0
	one.Before(func(*pb.RangeRequest) error {
		if n++; n == 3 { // after the count and the first page
			return status.Error(codes.Unavailable, "it restarts")
		}
		return nil
	})
	s := dial(t, etcd.Options{Endpoints: []string{one.Endpoint(), other.Endpoint()}})
	_, _, err := read(t, s, "/registry/")
	require.ErrorIs(t, err, etcd.ErrAnotherCluster)
	for _, part := range []string{one.Endpoint(), other.Endpoint(), fmt.Sprintf("%x", one.Cluster()), fmt.Sprintf("%x", other.Cluster())} {
		require.ErrorContains(t, err, part)
	}
	one.Before(func(*pb.RangeRequest) error { return status.Error(codes.Unavailable, "it restarts") })
	_, err = s.Find(t.Context(), "/registry/secrets/000001")
	require.ErrorIs(t, err, etcd.ErrAnotherCluster, "a store is of one cluster, and not only a walk")
}

func TestAWalkTellsOfWhichClusterItIs(t *testing.T) {
	server := stored(t, 3, 10)
	contents, err := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}}).Read(t.Context(), "/registry/")
	require.NoError(t, err)
	require.Equal(t, server.Cluster(), contents.Cluster)
}

func TestAnEtcdMayBecomeAnotherBehindItsEndpoint(t *testing.T) {
	server := stored(t, 3, 10)
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}})
	_, err := s.Find(t.Context(), "/registry/secrets/000001")
	require.NoError(t, err)
	server.After(func(r *pb.RangeResponse) { r.Header.ClusterId = 0x77 })
	_, err = s.Find(t.Context(), "/registry/secrets/000001")
	require.ErrorIs(t, err, etcd.ErrAnotherCluster)
	require.ErrorContains(t, err, "is of 77: was it restored?")
}

// What k3s stores in names no cluster. One endpoint of it is one store.
func TestAStoreThatNamesNoClusterHasOneEndpoint(t *testing.T) {
	server := stored(t, 3, 10)
	server.After(func(r *pb.RangeResponse) { r.Header.ClusterId = 0 })
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}})
	_, _, err := read(t, s, "/registry/")
	require.NoError(t, err)
	s = dial(t, etcd.Options{Endpoints: []string{server.Endpoint(), server.Endpoint()}})
	_, _, err = read(t, s, "/registry/")
	require.ErrorIs(t, err, etcd.ErrAnotherCluster)
	require.ErrorContains(t, err, "name one endpoint")
}

// A proxy, or another store with the API of etcd, may leave out what it counted.
func TestAWalkHasAsManyObjectsAsWereCounted(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*pb.RangeResponse)
		want  string
	}{
		"it ends with the first page": {func(r *pb.RangeResponse) { r.More = false }, "it ends early, 450 short of what it counted"},
		"the count was too small":     {func(r *pb.RangeResponse) { r.Count = min(r.Count, 20) }, "more objects than it counted"},
		"more were to come":           {func(r *pb.RangeResponse) { r.Count, r.More = min(r.Count, 50), true }, "more objects than it counted"},
	} {
		server := stored(t, 500, 10)
		server.After(c.spoil)
		_, _, err := read(t, dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}}), "/registry/")
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestNothingIsNoError(t *testing.T) {
	keys, _, err := read(t, dial(t, etcd.Options{Endpoints: []string{etcdtest.Start(t).Endpoint()}}), "/registry/")
	require.NoError(t, err)
	require.Empty(t, keys)
}

func TestFind(t *testing.T) {
	server := stored(t, 3, 5)
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}})
	entry, err := s.Find(t.Context(), "/registry/secrets/000001")
	require.NoError(t, err)
	require.Equal(t, etcd.Entry{Key: "/registry/secrets/000001", Value: []byte("vvvvv"), ModRevision: 3, Cluster: server.Cluster()}, entry)
	require.False(t, server.Requests()[0].Serializable, "a member that lags would not know better")
	server.After(func(r *pb.RangeResponse) {
		if r.Count > 0 {
			r.Kvs[0].Key = []byte("/registry/secrets/000002")
		}
	})
	_, err = s.Find(t.Context(), "/registry/secrets/000001")
	require.ErrorContains(t, err, `it was asked for the key "/registry/secrets/000001", and gave another`)
	_, err = s.Find(t.Context(), "/registry/secrets/00000")
	require.ErrorIs(t, err, audit.ErrNotFound)
	require.ErrorContains(t, err, "/registry/secrets/00000")
}

func TestAnotherMemberAnswersForOneThatIsAway(t *testing.T) {
	server := stored(t, 300, 10)
	gone := "unix://" + t.TempDir() + "/gone.sock"
	s := dial(t, etcd.Options{Endpoints: []string{gone, server.Endpoint()}})
	keys, _, err := read(t, s, "/registry/")
	require.NoError(t, err)
	require.Len(t, keys, 300)
	require.Contains(t, s.String(), gone)
}

func TestAnotherMemberAnswersForOneThatHangs(t *testing.T) {
	hangs, server := stored(t, 1, 10), stored(t, 300, 10)
	release := make(chan struct{})
	defer close(release)
	hangs.Before(func(*pb.RangeRequest) error { <-release; return nil })
	s := dial(t, etcd.Options{Endpoints: []string{hangs.Endpoint(), server.Endpoint()}, Timeout: time.Second})
	keys, _, err := read(t, s, "/registry/")
	require.NoError(t, err)
	require.Len(t, keys, 300)
	require.Len(t, hangs.Requests(), 1, "the one that answered is asked first from then on")
}

func TestAnElectionIsWaitedFor(t *testing.T) {
	server := stored(t, 3, 10)
	answers := make(chan error, 2)
	answers <- rpctypes.ErrGRPCNoLeader
	answers <- rpctypes.ErrGRPCLeaderChanged
	server.Before(func(*pb.RangeRequest) error {
		select {
		case err := <-answers:
			return err
		default:
			return nil
		}
	})
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	s := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}, Clock: clock})
	done := make(chan error)
	go func() {
		_, err := s.Find(t.Context(), "/registry/secrets/000000")
		done <- err
	}()
	for range 2 {
		require.Eventually(t, clock.HasWaiters, 10*time.Second, time.Millisecond)
		clock.Step(time.Second)
	}
	require.NoError(t, <-done)
}

func TestErrorsSayWhoAndWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		want   string
	}{
		"no right":      {rpctypes.ErrGRPCPermissionDenied, "a client that may read"},
		"no user":       {rpctypes.ErrGRPCUserEmpty, "a client that may read"},
		"another error": {rpctypes.ErrGRPCRequestTooLarge, "request is too large"},
	} {
		t.Run(name, func(t *testing.T) {
			server, other := etcdtest.Start(t), etcdtest.Start(t)
			server.Before(func(*pb.RangeRequest) error { return c.answer })
			_, err := dial(t, etcd.Options{Endpoints: []string{server.Endpoint(), other.Endpoint()}}).Read(t.Context(), "/registry/")
			require.ErrorContains(t, err, "etcd at "+server.Endpoint())
			require.ErrorContains(t, err, c.want)
			require.Equal(t, status.Code(c.answer), status.Code(err))
			require.Len(t, server.Requests(), 1, "asking again would not help")
			require.Empty(t, other.Requests(), "nor would another member")
		})
	}
}

func TestAHangIsAnErrorThatSaysHowLong(t *testing.T) {
	server := stored(t, 1, 1)
	release := make(chan struct{})
	defer close(release)
	server.Before(func(*pb.RangeRequest) error { <-release; return nil })
	_, err := dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}, Timeout: 50 * time.Millisecond}).Find(t.Context(), "/a")
	require.ErrorContains(t, err, "no answer within 50ms")
}

func TestNobodyThere(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	s := dial(t, etcd.Options{Endpoints: []string{"unix://" + t.TempDir() + "/gone.sock"}, Clock: clock})
	done := make(chan error)
	go func() {
		_, err := s.Find(t.Context(), "/a")
		done <- err
	}()
	for range 2 {
		require.Eventually(t, clock.HasWaiters, 10*time.Second, time.Millisecond)
		clock.Step(time.Second)
	}
	err := <-done
	require.ErrorContains(t, err, "check the endpoint")
	require.ErrorContains(t, err, "no such file")
}

func TestWaitingCanBeCancelled(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	s := dial(t, etcd.Options{Endpoints: []string{"unix://" + t.TempDir() + "/gone.sock"}, Clock: clock})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.Find(ctx, "/a")
		done <- err
	}()
	require.Eventually(t, clock.HasWaiters, 10*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// kine, the etcd of k3s without one, names no cluster, counts all keys, and gives none of
// them as of a revision if the range has no end.
func TestAllThatKineHasIsRead(t *testing.T) {
	server := stored(t, 120, 10)
	server.Before(func(r *pb.RangeRequest) error {
		if string(r.RangeEnd) == "\x00" && !r.CountOnly {
			r.RangeEnd = r.Key
		}
		return nil
	})
	server.After(func(answer *pb.RangeResponse) { answer.Header.ClusterId = 0 })
	keys, _, err := read(t, dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}}), "")
	require.NoError(t, err)
	require.Len(t, keys, 120)

	server.Store("\xff", nil)
	_, _, err = read(t, dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}}), "")
	require.ErrorContains(t, err, "it ends early, 1 short of what it counted")
}

// To give a page of a range etcd goes through the keys of all of it.
func TestEtcdHasToGoThroughFewKeysForAPage(t *testing.T) {
	for name, key := range map[string]func(i int) string{
		"one namespace":   func(i int) string { return fmt.Sprintf("/registry/secrets/default/secret-%06d", i) },
		"many namespaces": func(i int) string { return fmt.Sprintf("/registry/secrets/team-%d/secret-%d", i%997, i) },
		"many resources":  func(i int) string { return fmt.Sprintf("/registry/kind-%d/ns/%x", i%31, i*i) },
		"uneven names": func(i int) string {
			return fmt.Sprintf("/registry/secrets/a/%s", strings.Repeat("z", i%7)+fmt.Sprint(i))
		},
		"raw bytes": func(i int) string {
			return "/registry/secrets/\xff\xff" + string([]byte{byte(i >> 16), byte(i >> 8), byte(i)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 150_000
			server, want := etcdtest.Start(t), map[string]bool{}
			for i := range n {
				want[key(i)] = true
			}
			for _, key := range slices.Sorted(maps.Keys(want)) {
				server.Store(key, []byte("value"))
			}
			var gone atomic.Int64
			server.After(func(r *pb.RangeResponse) { gone.Add(r.Count) })
			keys, _, err := read(t, dial(t, etcd.Options{Endpoints: []string{server.Endpoint()}}), "/registry/")
			require.NoError(t, err)
			require.Len(t, keys, len(want))
			require.IsIncreasing(t, keys)
			require.Less(t, gone.Load(), int64(40*n), "as often as not a part is too large or too small")
			require.Less(t, len(server.Requests()), 3*n/1000, "nor are there many pages more")
		})
	}
}
