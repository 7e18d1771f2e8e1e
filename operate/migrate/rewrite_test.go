package migrate_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/operate/migrate"
)

func rewrite(t *testing.T, a *api, from migrate.Checkpoint, o migrate.Options) (migrate.Checkpoint, error) {
	t.Helper()
	return a.cluster(newClock()).Rewrite(t.Context(), secrets, from, o)
}

func TestEveryObjectIsStoredAgain(t *testing.T) {
	a := newAPI(t, 25)
	at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{PageSize: 10})
	require.NoError(t, err)
	require.Zero(t, a.stale())
	require.True(t, at.Done)
	require.Equal(t, migrate.Counts{Seen: 25, Rewritten: 25}, at.Counts)
	require.Len(t, a.lists, 3)

	at, err = rewrite(t, a, migrate.Checkpoint{}, migrate.Options{})
	require.NoError(t, err)
	require.Equal(t, migrate.Counts{Seen: 25, Unchanged: 25}, at.Counts, "what is current stays as it is")
}

// serveLists answers lists with these pages, each with a token for the next, and
// patches as if they had stored something. It gives the paths of the patches.
func serveLists(a *api, pages ...[]metav1.PartialObjectMetadata) *[]string {
	patched := new([]string)
	a.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			*patched = append(*patched, r.URL.Path)
			answer(w, 200, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "2"}})
			return true
		}
		n, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		list := metav1.PartialObjectMetadataList{Items: pages[n]}
		if n+1 < len(pages) {
			list.Continue = strconv.Itoa(n + 1)
		}
		answer(w, 200, list)
		return true
	}
	return patched
}

func named(namespace, name string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "1"}}
}

func TestAResourceWithoutObjectsIsDone(t *testing.T) {
	at, err := rewrite(t, newAPI(t, 0), migrate.Checkpoint{}, migrate.Options{})
	require.NoError(t, err)
	require.True(t, at.Done)
	require.Zero(t, at.Counts)
}

// An apiserver may give a token and no objects, as when all of a page were deleted.
func TestAPageWithoutObjectsIsNotTheLast(t *testing.T) {
	a := newAPI(t, 0)
	patched := serveLists(a, []metav1.PartialObjectMetadata{named("a", "1")}, nil, []metav1.PartialObjectMetadata{named("a", "2")})
	at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{})
	require.NoError(t, err)
	require.True(t, at.Done)
	require.Equal(t, migrate.Object{Namespace: "a", Name: "2"}, at.Last)
	require.Equal(t, []string{"/api/v1/namespaces/a/secrets/1", "/api/v1/namespaces/a/secrets/2"}, *patched)
}

func TestAnObjectOfTheWholeClusterIsInNoNamespace(t *testing.T) {
	a := newAPI(t, 0)
	patched := serveLists(a, []metav1.PartialObjectMetadata{named("", "admin")})
	roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	at, err := a.cluster(newClock()).Rewrite(t.Context(), roles, migrate.Checkpoint{}, migrate.Options{})
	require.NoError(t, err)
	require.Equal(t, migrate.Object{Name: "admin"}, at.Last)
	require.Equal(t, []string{"/apis/rbac.authorization.k8s.io/v1/clusterroles/admin"}, *patched)
}

func TestTheTimeLeftIsNegativeWhileTheNumberOfObjectsIsNotKnown(t *testing.T) {
	a := newAPI(t, 0)
	serveLists(a, []metav1.PartialObjectMetadata{named("a", "1"), named("a", "2")}, []metav1.PartialObjectMetadata{named("a", "3")})
	told := map[int64]migrate.Progress{}
	_, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{Workers: 1, PerSecond: 1, Progress: func(p migrate.Progress) { told[p.Counts.Seen] = p }})
	require.NoError(t, err)
	require.Zero(t, told[2].Total, "no page said how many come after it")
	require.Negative(t, told[2].Left)
	require.EqualValues(t, 3, told[3].Total)
	require.Zero(t, told[3].Left)
}

func TestOnlyWhatNeedsItIsTouched(t *testing.T) {
	a := newAPI(t, 9)
	at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{Needs: func(o migrate.Object) bool { return o.Namespace == "ns-1" }})
	require.NoError(t, err)
	require.Equal(t, migrate.Counts{Seen: 9, Rewritten: 3, Skipped: 6}, at.Counts)
	for _, key := range a.patches {
		require.True(t, strings.HasPrefix(key, "ns-1/"))
	}
}

func TestAConflictIsReadAgainAndNotTakenForAnUpdate(t *testing.T) {
	a := newAPI(t, 3)
	a.fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch && len(a.patches) < 4 { // a lagging apiserver, just before
			a.update("ns-1/s-001", true)
		}
		return false
	}
	at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{Workers: 1})
	require.NoError(t, err)
	require.Zero(t, a.stale())
	require.EqualValues(t, 3, at.Counts.Rewritten)
	require.EqualValues(t, 3, at.Counts.Conflicts)
}

// A namespace that is not there keeps its objects from being updated.
func TestAnObjectThatIsThereAndNotFoundIsAFailure(t *testing.T) {
	a := newAPI(t, 3)
	a.faults(1, http.MethodPatch, "", refuse(404, metav1.StatusReasonNotFound))
	reached, err := a.cluster(newClock()).Rewrite(t.Context(), secrets, migrate.Checkpoint{}, migrate.Options{Workers: 1})
	var incomplete *migrate.IncompleteError
	require.ErrorAs(t, err, &incomplete)
	require.Equal(t, []migrate.Failure{{Object: migrate.Object{Namespace: "ns-0", Name: "s-000"}, Problem: "because"}}, incomplete.Failures)
	require.Equal(t, migrate.Counts{Seen: 3, Rewritten: 2, Failed: 1}, reached.Counts)
}

func TestAnObjectThatNeverRestsIsAFailure(t *testing.T) {
	a := newAPI(t, 2)
	a.fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			a.update("ns-1/s-001", true)
		}
		return false
	}
	at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{})
	var incomplete *migrate.IncompleteError
	require.ErrorAs(t, err, &incomplete)
	require.EqualValues(t, 1, incomplete.Failed)
	require.Equal(t, migrate.Object{Namespace: "ns-1", Name: "s-001"}, incomplete.Failures[0].Object)
	require.ErrorContains(t, err, "1 object of secrets could not be rewritten (1) ns-1/s-001: was updated by somebody else 20 times in a row")
	require.Equal(t, migrate.Counts{Seen: 2, Rewritten: 1, Failed: 1, Conflicts: 20}, at.Counts)
}

func TestWhatIsDeletedMeanwhileNeedsNothing(t *testing.T) {
	for name, deleted := range map[string]func(a *api, r *http.Request) bool{
		"before the patch":    func(_ *api, r *http.Request) bool { return r.Method == http.MethodPatch },
		"between two patches": func(a *api, r *http.Request) bool { return len(a.patches) == 1 && r.Method == http.MethodGet },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, 1)
			a.fault = func(_ http.ResponseWriter, r *http.Request) bool {
				switch {
				case deleted(a, r):
					delete(a.objects, "ns-0/s-000")
				case r.Method == http.MethodPatch:
					a.update("ns-0/s-000", true)
				}
				return false
			}
			at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{})
			require.NoError(t, err)
			require.EqualValues(t, 1, at.Counts.Gone)
		})
	}
}

func TestWhatGoesAwayIsWaitedFor(t *testing.T) {
	busy := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	}
	hangUp := func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := w.(http.Hijacker).Hijack()
		require.NoError(t, err)
		require.NoError(t, connection.Close())
	}
	for name, tc := range map[string]struct {
		fault   func(http.ResponseWriter, *http.Request)
		times   int
		atLeast time.Duration
	}{
		"429 with Retry-After":   {busy, 6, 42 * time.Second},
		"503":                    {refuse(503, metav1.StatusReasonServiceUnavailable), 6, 6300 * time.Millisecond},
		"504":                    {refuse(504, metav1.StatusReasonTimeout), 6, 6300 * time.Millisecond},
		"502 of a load balancer": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusBadGateway) }, 6, 6300 * time.Millisecond},
		"a server timeout":       {refuse(500, metav1.StatusReasonServerTimeout), 6, 6300 * time.Millisecond},
		"a few internal errors":  {refuse(500, metav1.StatusReasonInternalError), 4, 1500 * time.Millisecond},
		"a broken connection":    {hangUp, 3, 700 * time.Millisecond},
		"an answer that is none": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, 6, 6300 * time.Millisecond},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPatch} {
			t.Run(name+" "+method, func(t *testing.T) {
				a, clk := newAPI(t, 2), newClock()
				a.faults(tc.times, method, "secrets", tc.fault)
				before := clk.Now()
				at, err := a.cluster(clk).Rewrite(t.Context(), secrets, migrate.Checkpoint{}, migrate.Options{Workers: 1})
				require.NoError(t, err)
				require.Zero(t, a.stale())
				require.EqualValues(t, tc.times, at.Counts.Retries)
				require.GreaterOrEqual(t, clk.Since(before), tc.atLeast)
			})
		}
	}
}

func TestAnOutageEndsTheRunAndLosesNothing(t *testing.T) {
	a := newAPI(t, 25)
	var saved migrate.Checkpoint
	down := func(_ http.ResponseWriter, _ *http.Request) {}
	a.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if len(a.patches) < 15 || down == nil {
			return false
		}
		refuse(503, metav1.StatusReasonServiceUnavailable)(w, r)
		return true
	}
	o := migrate.Options{PageSize: 10, Workers: 1, Patience: time.Minute, Save: func(c migrate.Checkpoint) error { saved = c; return nil }}
	at, err := rewrite(t, a, migrate.Checkpoint{}, o)
	var outage *migrate.OutageError
	require.ErrorAs(t, err, &outage)
	require.Equal(t, saved, at)
	require.EqualValues(t, 10, at.Counts.Rewritten)

	data, err := json.Marshal(saved)
	require.NoError(t, err)
	var from migrate.Checkpoint
	require.NoError(t, json.Unmarshal(data, &from))
	down = nil
	at, err = rewrite(t, a, from, o)
	require.NoError(t, err)
	require.Zero(t, a.stale())
	require.EqualValues(t, 25, at.Counts.Seen)
	require.EqualValues(t, 20, at.Counts.Rewritten)
	require.EqualValues(t, 5, at.Counts.Unchanged, "the five done before the outage")
}

func TestAnInternalErrorThatStaysIsTheObjectsOwn(t *testing.T) {
	a := newAPI(t, 3)
	a.faults(-1, http.MethodPatch, "s-001", refuse(500, metav1.StatusReasonInternalError))
	at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{})
	require.ErrorContains(t, err, "ns-1/s-001: because")
	require.Equal(t, migrate.Counts{Seen: 3, Rewritten: 2, Failed: 1, Retries: 4}, at.Counts)
}

func TestWhatAWebhookForbidsIsNamedAndTheRestIsDone(t *testing.T) {
	a := newAPI(t, 3)
	a.faults(-1, http.MethodPatch, "s-002", refuse(403, metav1.StatusReasonForbidden))
	_, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{})
	require.ErrorContains(t, err, "ns-2/s-002: because")
	require.Equal(t, 1, a.stale())
}

// A policy refuses all objects of the first namespaces.
func TestManyThatFailLeaveNoOtherBehind(t *testing.T) {
	a := newAPI(t, 500)
	a.faults(-1, http.MethodPatch, "namespaces/ns-0/", refuse(403, metav1.StatusReasonForbidden))
	var last migrate.Progress
	at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{PageSize: 10, Progress: func(p migrate.Progress) { last = p }})
	var incomplete *migrate.IncompleteError
	require.ErrorAs(t, err, &incomplete)
	require.Len(t, incomplete.Failures, 100, "the first of them")
	require.Equal(t, migrate.Counts{Seen: 500, Rewritten: 333, Failed: 167}, at.Counts)
	require.Equal(t, at.Counts, last.Counts)
}

func TestWhatWasDoneIsToldAlsoWhenItEndsWithAnError(t *testing.T) {
	a := newAPI(t, 30)
	a.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || len(a.lists) < 2 {
			return false
		}
		refuse(403, metav1.StatusReasonForbidden)(w, r)
		return true
	}
	var last migrate.Progress
	_, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{PageSize: 10, Progress: func(p migrate.Progress) { last = p }})
	require.Error(t, err)
	require.EqualValues(t, 20, last.Counts.Rewritten)
}

func TestAnExpiredLoginEndsTheRun(t *testing.T) {
	a := newAPI(t, 500)
	a.faults(-1, http.MethodPatch, "", refuse(401, metav1.StatusReasonUnauthorized))
	at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{})
	require.ErrorContains(t, err, "rewriting secrets: because")
	require.Zero(t, at.Counts.Seen)
}

func TestAResourceThatCannotBeListedSaysWhy(t *testing.T) {
	a := newAPI(t, 1)
	a.faults(-1, http.MethodGet, "secrets", refuse(500, metav1.StatusReasonInternalError))
	_, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{})
	require.ErrorIs(t, err, migrate.ErrUnreadable)
	a.faults(-1, http.MethodGet, "secrets", refuse(403, metav1.StatusReasonForbidden))
	_, err = rewrite(t, a, migrate.Checkpoint{}, migrate.Options{})
	require.ErrorContains(t, err, "because")
}

func TestAnExpiredTokenIsContinued(t *testing.T) {
	for name, tc := range map[string]struct {
		renews bool
		lists  []string
	}{
		"with the one that is given for it": {true, []string{"", "1025@ns-0/s-021", "1025@ns-0/s-021", "-1@ns-0/s-021"}},
		"from the last object, without one": {false, []string{"", "1025@ns-0/s-021", "1025@ns-0/s-021", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, 25)
			a.renews = tc.renews
			a.fault = func(w http.ResponseWriter, r *http.Request) bool {
				token := r.URL.Query().Get("continue")
				if token == "" || a.compacted > 0 {
					return false
				}
				a.lists = append(a.lists, token)
				refuse(503, metav1.StatusReasonServiceUnavailable)(w, r)
				a.update("ns-1/new", false)
				a.compacted = a.revision
				return true
			}
			at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{PageSize: 8, Workers: 1})
			require.NoError(t, err)
			require.Equal(t, tc.lists, a.lists[:4])
			require.Zero(t, a.stale())
			require.Len(t, a.patches, 26, "none twice")
			require.EqualValues(t, 26, at.Counts.Seen)
		})
	}
}

func TestATokenOfAnotherClusterIsNotTrusted(t *testing.T) {
	a := newAPI(t, 5)
	a.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") != "stranger" {
			return false
		}
		refuse(400, metav1.StatusReasonBadRequest)(w, r)
		return true
	}
	from := migrate.Checkpoint{Resource: secrets, Continue: "stranger"}
	_, err := rewrite(t, a, from, migrate.Options{})
	require.NoError(t, err)
	require.Zero(t, a.stale())
}

func TestACheckpointOfSomethingElseIsRefused(t *testing.T) {
	a := newAPI(t, 1)
	_, err := rewrite(t, a, migrate.Checkpoint{Resource: secrets, Goal: "A"}, migrate.Options{Goal: "B"})
	require.ErrorContains(t, err, `for "A", not of /v1, Resource=secrets for "B"`)
	_, err = rewrite(t, a, migrate.Checkpoint{Resource: deployments, Goal: "A"}, migrate.Options{Goal: "A"})
	require.ErrorContains(t, err, `of apps/v1, Resource=deployments for "A", not of /v1, Resource=secrets`)
	require.Empty(t, a.patches)
}

func TestAFileThatCannotBeWrittenEndsTheRun(t *testing.T) {
	full := errors.New("disk full")
	_, err := rewrite(t, newAPI(t, 1), migrate.Checkpoint{}, migrate.Options{Save: func(migrate.Checkpoint) error { return full }})
	require.ErrorIs(t, err, full)
}

func TestTheRateIsKept(t *testing.T) {
	a, clk := newAPI(t, 50), newClock()
	before := clk.Now()
	var last migrate.Progress
	var middle bool
	earlier := migrate.Checkpoint{Resource: secrets, Counts: migrate.Counts{Seen: 1000, Rewritten: 1000}}
	_, err := a.cluster(clk).Rewrite(t.Context(), secrets, earlier, migrate.Options{
		Workers: 1, PerSecond: 10, PageSize: 20, Progress: func(p migrate.Progress) {
			require.GreaterOrEqual(t, p.Counts.Seen, last.Counts.Seen)
			last = p
			if p.Counts.Seen >= 1025 && p.Counts.Seen < 1040 {
				middle = true
				require.EqualValues(t, 1050, p.Total)
				require.InDelta(t, 10, p.PerSecond, 1)
				require.InDelta(t, float64(1050-p.Counts.Seen)/10, p.Left.Seconds(), 0.5)
			}
		}})
	require.NoError(t, err)
	require.Equal(t, 4900*time.Millisecond, clk.Since(before))
	require.EqualValues(t, 1050, last.Counts.Rewritten)
	require.Zero(t, last.Left)
	require.True(t, middle)
}

func TestThereAreNeverMorePatchesThanWorkers(t *testing.T) {
	a := newAPI(t, 60)
	var now, most atomic.Int32
	server := a.Config.Handler
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			runtime.Gosched()
		}
		server.ServeHTTP(w, r)
	})
	_, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{Workers: 3, PageSize: 20})
	require.NoError(t, err)
	require.LessOrEqual(t, most.Load(), int32(3))
}

// A page is listed while the one before it is rewritten, and no page before that.
func TestTheNextPageIsListedMeanwhile(t *testing.T) {
	a := newAPI(t, 30)
	listed := make(chan string, 10)
	server := a.Config.Handler
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(w, r)
		if r.Method == http.MethodGet {
			listed <- r.URL.Query().Get("continue")
		} else if a.mu.Lock(); true {
			first := len(a.patches) == 1
			a.mu.Unlock()
			if first { // the second page comes before this is answered
				require.Empty(t, <-listed)
				require.NotEmpty(t, <-listed)
				require.Empty(t, listed)
			}
		}
	})
	at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{PageSize: 10, Workers: 1})
	require.NoError(t, err)
	require.Equal(t, migrate.Counts{Seen: 30, Rewritten: 30}, at.Counts)
	require.Len(t, a.lists, 3, "none twice")
}

// Nobody knows what is given as JSON inside objects of other kinds.
func TestOnlySecretsAndConfigMapsArePatchedStrategically(t *testing.T) {
	for r, want := range map[schema.GroupVersionResource]string{
		secrets: "application/strategic-merge-patch+json", {Version: "v1", Resource: "configmaps"}: "application/strategic-merge-patch+json",
		{Version: "v1", Resource: "pods"}: "application/merge-patch+json", {Group: "example.com", Version: "v1", Resource: "secrets"}: "application/merge-patch+json",
		{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"}: "application/merge-patch+json",
	} {
		a := newAPI(t, 0)
		var sent string
		serveLists(a, []metav1.PartialObjectMetadata{named("a", "1")})
		lists := a.fault
		a.fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPatch {
				sent = r.Header.Get("Content-Type")
			}
			return lists(w, r)
		}
		_, err := a.cluster(newClock()).Rewrite(t.Context(), r, migrate.Checkpoint{}, migrate.Options{})
		require.NoError(t, err)
		require.Equal(t, want, sent, r)
	}
}

func TestACancelledRunEndsAtOnce(t *testing.T) {
	a := newAPI(t, 30)
	ctx, cancel := context.WithCancel(t.Context())
	a.fault = func(http.ResponseWriter, *http.Request) bool {
		if len(a.patches) == 5 {
			cancel()
		}
		return false
	}
	at, err := a.cluster(newClock()).Rewrite(ctx, secrets, migrate.Checkpoint{}, migrate.Options{Workers: 1, PageSize: 4})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, at.Done)
	require.EqualValues(t, 4, at.Counts.Rewritten)
}

func TestWrongOptionsAreRefused(t *testing.T) {
	for _, o := range []migrate.Options{{Workers: 65}, {PageSize: -1}, {PerSecond: -1}, {PerSecond: 1e-9}, {Patience: -1}, {Expected: -1}} {
		_, err := rewrite(t, newAPI(t, 0), migrate.Checkpoint{}, o)
		require.ErrorContains(t, err, "options of a migration", "%+v", o)
	}
}

// The page after it was listed already, and nothing of it is done.
func TestAPageThatIsNotBegunIsNotPassed(t *testing.T) {
	a := newAPI(t, 12)
	ctx, cancel := context.WithCancel(t.Context())
	var saved migrate.Checkpoint
	at, err := a.cluster(newClock()).Rewrite(ctx, secrets, migrate.Checkpoint{}, migrate.Options{PageSize: 4, Workers: 1, Save: func(c migrate.Checkpoint) error {
		require.Eventually(t, func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.lists) == 2 }, time.Minute, time.Millisecond)
		require.False(t, saved.Anew || saved.Continue != "", "no other page is passed")
		cancel()
		saved = c
		return nil
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, saved, at)
	require.Equal(t, 8, a.stale())
}

func TestARequestThatHangsIsRepeated(t *testing.T) {
	a, released := newAPI(t, 1), make(chan struct{})
	defer close(released)
	var hung atomic.Bool
	server := a.Config.Handler
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch && hung.CompareAndSwap(false, true) {
			server.ServeHTTP(httptest.NewRecorder(), r) // it has its effect all the same
			<-released
			return
		}
		server.ServeHTTP(w, r)
	})
	c, err := migrate.NewCluster(&rest.Config{Host: a.URL, Timeout: 100 * time.Millisecond}, newClock())
	require.NoError(t, err)
	at, err := c.Rewrite(t.Context(), secrets, migrate.Checkpoint{}, migrate.Options{})
	require.NoError(t, err)
	require.Equal(t, migrate.Counts{Seen: 1, Unchanged: 1, Conflicts: 1, Retries: 1}, at.Counts)
}

func TestWithoutOrderNothingIsLeftOut(t *testing.T) {
	a := newAPI(t, 20)
	a.mirrored = true
	a.fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") != "" && a.compacted == 0 {
			a.revision++
			a.compacted = a.revision
		}
		return false
	}
	at, err := rewrite(t, a, migrate.Checkpoint{}, migrate.Options{PageSize: 8, Workers: 1})
	require.NoError(t, err)
	require.True(t, at.Unordered)
	require.Contains(t, a.lists[1:], "", "it began anew")
	require.Zero(t, a.stale())
}

func TestMemoryIsBoundedByAPage(t *testing.T) {
	a := newAPI(t, 5000)
	var most uint64
	o := migrate.Options{PageSize: 50, Save: func(migrate.Checkpoint) error {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
		return nil
	}, Needs: func(migrate.Object) bool { return false }}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	_, err := rewrite(t, a, migrate.Checkpoint{}, o)
	require.NoError(t, err)
	require.Less(t, int64(most)-int64(m.HeapAlloc), int64(2<<20))
}
