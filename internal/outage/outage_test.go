package outage

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/transformer"
)

var (
	errOutage  = fmt.Errorf("kms provider %q: %w: no such file", "one", envelope.ErrUnavailable)
	errDamaged = fmt.Errorf("kms provider %q: %w", "one", transformer.ErrCorrupt)
)

// kubes is kube-apiserver's own storage.
func kubes(g generic.RESTOptionsGetter) generic.RESTOptionsGetter { return g }

// bothWays runs a test with and without the deletion of what cannot be read.
func bothWays(t *testing.T, test func(*testing.T)) {
	for name, on := range map[string]bool{"not deletable as corrupt": false, "deletable as corrupt": true} {
		t.Run(name, func(t *testing.T) {
			deletable(t, on)
			test(t)
		})
	}
}

func requireUnavailable(t *testing.T, err error, call string) {
	t.Helper()
	var status apierrors.APIStatus
	require.ErrorAs(t, err, &status, call)
	require.EqualValues(t, http.StatusServiceUnavailable, status.Status().Code, "%s: %v", call, err)
	require.True(t, apierrors.IsServiceUnavailable(err), call)
	seconds, ok := apierrors.SuggestsClientDelay(err)
	require.True(t, ok, call)
	require.Equal(t, retryAfter, seconds, call)
	require.ErrorContains(t, err, errOutage.Error(), call)
}

func TestAnOutageIsAnsweredWithATimeToTryAgain(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		r := newRig(t, RESTOptions)
		r.stored("healthy")
		r.fails = errOutage
		for name, call := range r.calls("healthy") {
			requireUnavailable(t, call(), name)
		}
		r.fails = nil
		for _, name := range []string{"get", "list", "create", "update", "delete"} {
			require.NoError(t, r.calls("healthy")[name](), name)
		}
	})
}

func TestWhatIsNoOutageIsAnsweredAsByKubeAPIServer(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		ours, theirs := newRig(t, RESTOptions), newRig(t, kubes)
		require.Equal(t, answer(theirs.calls("absent")["get"]()), answer(ours.calls("absent")["get"]()))
		ours.stored("x")
		theirs.stored("x")
		for _, fails := range []error{errDamaged, envelope.ErrUnknownKEK, transformer.ErrNoProvider, errors.New("odd")} {
			ours.fails, theirs.fails = fails, fails
			for name, call := range ours.calls("x") {
				require.Equal(t, answer(theirs.calls("x")[name]()), answer(call()), "%s: %v", name, fails)
			}
		}
	})
}

// answer is what a client gets for an error.
func answer(err error) metav1.Status { return *responsewriters.ErrorToAPIStatus(err) }

func TestOnlyWhatIsNoOutageCanBeDeletedAsCorrupt(t *testing.T) {
	deletable(t, true)
	for name, c := range map[string]struct {
		wrap    func(generic.RESTOptionsGetter) generic.RESTOptionsGetter
		fails   error
		deletes bool
	}{
		"kube-apiserver's own, an outage":     {kubes, errOutage, true},
		"kube-apiserver's own, damaged":       {kubes, errDamaged, true},
		"an outage":                           {RESTOptions, errOutage, false},
		"damaged, and an outage of another":   {RESTOptions, errors.Join(errDamaged, errOutage), false},
		"damaged":                             {RESTOptions, errDamaged, true},
		"a KEK that the plugin does not have": {RESTOptions, envelope.ErrUnknownKEK, true},
		"a key that is no longer configured":  {RESTOptions, transformer.ErrNoProvider, true},
		"a value that can be read":            {RESTOptions, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.wrap)
			r.stored("x")
			r.fails = c.fails
			err := r.deleteUnread("x")
			require.Equal(t, c.deletes, err == nil, "%v", err)
			require.Equal(t, !c.deletes, r.has("x"))
			if !c.deletes && c.fails != nil { // up to 1.36 the former, from 1.37 on the latter
				require.True(t, apierrors.IsInvalid(err) || apierrors.IsServiceUnavailable(err), "%v", err)
			}
		})
	}
}

func TestAListThatMetAnOutageIsAnOutage(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		r := newRig(t, RESTOptions)
		for i := range 5 {
			r.stored(fmt.Sprint("x", i))
		}
		r.failsAt = map[string]error{"x2": errOutage, "x3": errDamaged}
		requireUnavailable(t, r.calls("x2")["list"](), "list")
		requireUnavailable(t, r.calls("x2")["get"](), "get")
		require.True(t, apierrors.IsInternalError(r.calls("x3")["get"]()))
		require.NoError(t, r.calls("x4")["get"]())
	})
}

// These are the words in an error by which kube-apiserver 1.36 knows what to
// delete.
func TestNoAnswerToAnOutageReadsLikeThatToADamagedValue(t *testing.T) {
	deletable(t, true)
	ours, theirs := newRig(t, RESTOptions), newRig(t, kubes)
	for _, r := range []*rig{ours, theirs} {
		r.stored("x")
		r.fails = errOutage
	}
	const words = "corrupt object"
	require.ErrorContains(t, theirs.calls("x")["delete"](), words)
	require.NotContains(t, ours.calls("x")["delete"]().Error(), words)
}

func TestAWatchEndsAsWithKubeAPIServer(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		ours, theirs := newRig(t, RESTOptions), newRig(t, kubes)
		watched := func(r *rig) watch.Event {
			r.stored("x")
			r.fails = errOutage
			watching, err := r.WatchPredicate(r.ctx(), storage.Everything, "", nil)
			require.NoError(t, err)
			defer watching.Stop()
			return <-watching.ResultChan()
		}
		event := watched(ours)
		require.Equal(t, watched(theirs), event)
		require.EqualValues(t, http.StatusInternalServerError, event.Object.(*metav1.Status).Code)
	})
}
