package reencrypt

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/operate/migrate"
)

// unlooked is an apiserver into whose etcd nobody can look. Its Secrets are s0, s1 and so
// on, and listed one by one. It stores one again that is not under its key.
type unlooked struct {
	mu      sync.Mutex
	key     int
	objects []struct{ key, version int }
	patches int
	before  func(patch int) // what happens before a patch, the first of which is 1
	refuses bool            // it refuses the patch
	lists   []string        // tokens
}

func (u *unlooked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock() // a request may go on after its sender was interrupted
	defer u.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	meta := func(i int) metav1.PartialObjectMetadata {
		return metadata(fmt.Sprint("s", i), fmt.Sprint(u.objects[i].version))
	}
	switch parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); {
	case r.URL.Path == "/api":
		answer(w, metav1.APIVersions{Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		answer(w, metav1.APIGroupList{})
	case len(parts) == 2:
		answer(w, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "secrets", Verbs: metav1.Verbs{"list", "get", "patch"}}}})
	case len(parts) == 3:
		token := r.URL.Query().Get("continue")
		u.lists = append(u.lists, token)
		i, _ := strconv.Atoi(token)
		list := metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{meta(i)}}
		if i+1 < len(u.objects) {
			list.Continue = strconv.Itoa(i + 1)
		}
		answer(w, list)
	default:
		i, _ := strconv.Atoi(strings.TrimPrefix(parts[5], "s"))
		u.patches++
		u.before(u.patches)
		if u.refuses {
			http.Error(w, "{}", http.StatusForbidden)
			return
		}
		if o := &u.objects[i]; o.key != u.key {
			o.key, o.version = u.key, o.version+1
		}
		answer(w, meta(i))
	}
}

// changes is a change that comes from somewhere else.
func (u *unlooked) changes(change func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	change()
}

func (u *unlooked) under(key int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !slices.ContainsFunc(u.objects, func(o struct{ key, version int }) bool { return o.key != key })
}

func newSweep(t *testing.T, n int, before func(u *unlooked, patch int)) (*Sweep, *unlooked) {
	u := &unlooked{key: 1, objects: make([]struct{ key, version int }, n)}
	u.before = func(patch int) { before(u, patch) }
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	clk := clocktesting.NewFakeClock(time.Unix(1795176000, 0))
	c, err := migrate.NewCluster(&rest.Config{Host: server.URL}, clk)
	require.NoError(t, err)
	return &Sweep{Resources: []schema.GroupResource{{Resource: "secrets"}}, Cluster: c, How: migrate.Options{Workers: 1},
		Checkpoints: migrate.Folder(t.TempDir()), Goal: "g", Clock: clk, Watcher: &ears{}}, u
}

func TestASweepEndsWithAPassThatFindsNothing(t *testing.T) {
	s, u := newSweep(t, 4, func(u *unlooked, patch int) {
		if patch == 3 { // all were stored again until now, by the key of before
			u.key = 2
		}
	})
	swept, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Empty(t, swept.Problems)
	require.True(t, u.under(2))
	var rewritten []int64
	for i, r := range swept.Rewritten {
		require.Equal(t, i+1, r.Round)
		rewritten = append(rewritten, r.Counts.Rewritten)
	}
	require.Equal(t, []int64{4, 2, 0}, rewritten)

	swept, err = s.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, swept.Problems, 1, "another run had nothing to do from its beginning")
}

func TestASweepThatNeverRestsIsAProblem(t *testing.T) {
	s, u := newSweep(t, 2, func(u *unlooked, _ int) { u.key++ })
	swept, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, swept.Rewritten, passes)
	require.Equal(t, []string{"secrets: gone through 4 times, and the last time 2 were stored anew still: the key changes, " +
		"not all apiservers write with the same one, or a webhook changes what is updated: see to it and run it again"}, swept.Problems)

	u.before = func(int) {}
	swept, err = s.Run(t.Context())
	require.NoError(t, err)
	require.Empty(t, swept.Problems, "it goes on with the same")
}

// Wherever a run is interrupted, the next one leaves nothing behind.
func TestASweepThatGoesOnLooksAtAllOfIt(t *testing.T) {
	for interrupted := 1; interrupted <= 12; interrupted++ {
		t.Run(fmt.Sprint(interrupted), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s, u := newSweep(t, 4, func(u *unlooked, patch int) {
				if patch == interrupted {
					cancel()
				}
			})
			_, err := s.Run(ctx)
			if interrupted <= 7 { // at the last patch of all it may be through
				require.ErrorIs(t, err, context.Canceled)
			}
			u.changes(func() { u.objects[0].key = 0 }) // of a backup
			swept, err := s.Run(t.Context())
			require.NoError(t, err)
			require.Empty(t, swept.Problems)
			require.True(t, u.under(1))
		})
	}
}

// What was rewritten before an interruption need not be again for it to have been of use.
func TestASweepThatWasInterruptedAsItLookedAgainGoesOn(t *testing.T) {
	for interrupted := 5; interrupted <= 7; interrupted++ {
		ctx, cancel := context.WithCancel(t.Context())
		s, u := newSweep(t, 4, func(u *unlooked, patch int) {
			if patch == interrupted {
				cancel()
			}
		})
		_, err := s.Run(ctx)
		require.ErrorIs(t, err, context.Canceled)
		u.changes(func() { u.lists = nil })
		swept, err := s.Run(t.Context())
		require.NoError(t, err)
		require.Empty(t, swept.Problems)
		if interrupted > 5 {
			require.NotEmpty(t, u.lists[0], "it goes on where it was")
		}
	}
}

// That the apiserver refuses an object for a moment, as it looks again, takes nothing back
// of what was stored again.
func TestASweepThatIsRefusedAsItLooksAgainIsFinishedByTheNextRun(t *testing.T) {
	s, u := newSweep(t, 4, func(u *unlooked, patch int) { u.refuses = patch == 6 })
	swept, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, swept.Problems, 1)
	swept, err = s.Run(t.Context())
	require.NoError(t, err)
	require.Empty(t, swept.Problems)
	require.True(t, u.under(1))
}
