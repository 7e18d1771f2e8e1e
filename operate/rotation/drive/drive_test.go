package drive_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/bubble"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/drive"
)

// cluster is a world in which everything works unless a test says otherwise.
type cluster struct {
	mu        sync.Mutex
	instances map[string]rotation.Instance
	stored    map[string]rotation.Count // by resource
	calls     map[string]int
	broken    map[string]error // by method
	blocked   map[string]chan struct{}
	forgiving bool // takes the end of a context for success
}

var (
	hashes  = []string{"sha256:before", "sha256:added", "sha256:swapped", "sha256:removed"}
	counted = []rotation.Etcd{{Cluster: 1, Revision: 7}}
	errOut  = errors.New("out of order")
)

func newCluster() *cluster {
	c := &cluster{instances: map[string]rotation.Instance{}, calls: map[string]int{}, broken: map[string]error{}, blocked: map[string]chan struct{}{},
		stored: map[string]rotation.Count{
			"secrets":    {Resource: "secrets", Provider: "old", KeyID: "one", Objects: 7},
			"configmaps": {Resource: "configmaps", Provider: "old", KeyID: "one", Objects: 5},
		}}
	for _, name := range []string{"cp-1", "cp-2"} {
		c.instances[name] = rotation.Instance{ConfigHash: hashes[0], Providers: map[string]rotation.Provider{
			"old": {Healthy: true, KeyID: "one"}, "new": {Healthy: true, KeyID: "two"}}}
	}
	return c
}

// called counts a call, and waits where a test wants it to.
func (c *cluster) called(ctx context.Context, method string) error {
	c.mu.Lock()
	c.calls[method]++
	blocked, err := c.blocked[method], c.broken[method]
	c.mu.Unlock()
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
			if c.forgiving {
				return nil
			}
			return ctx.Err()
		}
	}
	return err
}

func (c *cluster) times(method string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[method]
}

func (c *cluster) change(name string, change func(*rotation.Instance)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.instances[name]
	i.Providers = maps.Clone(i.Providers)
	change(&i)
	c.instances[name] = i
}

func (c *cluster) Observe(context.Context) map[string]rotation.Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := maps.Clone(c.instances)
	for name, i := range all {
		i.CheckedAt, i.FileHash = time.Now(), i.ConfigHash
		all[name] = i
	}
	return all
}

func (c *cluster) WriteConfig(ctx context.Context, instance string, to rotation.Stage, hash string) error {
	c.change(instance, func(i *rotation.Instance) { i.ConfigHash = hash })
	return c.called(ctx, "WriteConfig")
}

func (c *cluster) Restart(ctx context.Context, a rotation.Restart) error {
	return c.called(ctx, "Restart "+a.Instance)
}

func (c *cluster) Canary(ctx context.Context, a rotation.Canary) (rotation.Shown, error) {
	shown := rotation.Shown{KeyIDs: map[string]string{}, Resources: []string{"secrets"}, Etcds: []uint64{1}}
	c.change(a.Instance, func(i *rotation.Instance) {
		for _, name := range a.Providers {
			p := i.Providers[name]
			p.WroteKeyID, p.WroteAt = p.KeyID, time.Now()
			i.Providers[name] = p
			shown.KeyIDs[name] = p.KeyID
		}
	})
	return shown, c.called(ctx, "Canary")
}

func (c *cluster) Migrate(ctx context.Context, goal rotation.Goal, providers []string, resource string) error {
	if err := c.called(ctx, "Migrate "+resource); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.stored[resource]
	was.Provider, was.KeyID = providers[0], goal.KeyID
	c.stored[resource] = was
	return nil
}

func (c *cluster) Audit(ctx context.Context, resources []string) (rotation.Audit, error) {
	if err := c.called(ctx, "Audit"); err != nil {
		return rotation.Audit{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return rotation.Audit{Counts: slices.Collect(maps.Values(c.stored)), Etcds: counted}, nil
}

var both = []string{"secrets", "configmaps"}

func twoPlugins(t *testing.T) rotation.State {
	s, err := rotation.NewMove(rotation.Plan{Configs: map[string][]string{"cp-1": hashes, "cp-2": hashes},
		Resources: both, Hold: rotation.DefaultHold}, []string{"old"}, []string{"new"})
	require.NoError(t, err)
	return s
}

func onePlugin(t *testing.T) rotation.State {
	s, err := rotation.NewOnePlugin(rotation.Plan{Configs: map[string][]string{"cp-1": hashes[:1], "cp-2": hashes[:1]},
		Resources: both, Hold: rotation.DefaultHold}, []string{"old"}, "one")
	require.NoError(t, err)
	return s
}

// options store in s.
func options(s *rotation.State) drive.Options {
	return drive.Options{Clock: clock.RealClock{}, Save: func(next rotation.State) error {
		*s = next
		return nil
	}}
}

func TestTwoPluginsAreExchanged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s, began := newCluster(), twoPlugins(t), time.Now()
		done, err := drive.Run(t.Context(), c, s, options(&s))
		require.NoError(t, err)
		require.Equal(t, rotation.Done{KeyID: "two", Objects: 12, Etcds: counted, Providers: []string{"old"}, KeyIDs: []string{"one"}}, done)
		require.GreaterOrEqual(t, time.Since(began), time.Duration(rotation.DefaultHold))
		require.Equal(t, map[string]int{"WriteConfig": 6, "Canary": 20, "Migrate secrets": 1, "Migrate configmaps": 1, "Audit": 2}, c.calls)
		require.EqualValues(t, "done", s.Move.Step)
	})
}

// Who looks on is told of a turn before anything of it is done, and after it was stored.
func TestNothingIsDoneBeforeItIsTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), twoPlugins(t)
		o, done := options(&s), 0
		o.Before = func(turn drive.Turn) {
			require.Equal(t, s, turn.State, "it is stored")
			done = c.times("WriteConfig") + c.times("Canary") + c.times("Audit")
			for _, a := range turn.Decision.Actions {
				if w, ok := a.(rotation.WriteConfig); ok {
					require.NotEqual(t, w.Hashes["cp-1"], c.instances["cp-1"].ConfigHash)
				}
			}
		}
		o.Tell = func(turn drive.Turn) {
			for _, a := range turn.Decision.Actions {
				switch a := a.(type) {
				case rotation.WriteConfig:
					done += len(a.Hashes)
				case rotation.Canary:
					done++
				}
			}
			require.GreaterOrEqual(t, done, c.times("WriteConfig")+c.times("Canary"))
		}
		_, err := drive.Run(t.Context(), c, s, o)
		require.NoError(t, err)
	})
}

// A process that ends after any of its states was stored, or just before, is
// followed by one that is given the latest state.
func TestARotationSurvivesACrashAtAnyState(t *testing.T) {
	crash := errors.New("crash")
	for _, begin := range []func(*testing.T) rotation.State{twoPlugins, onePlugin} {
		for after := 0; ; after++ {
			whole := false
			bubble.Test(t, func(t *testing.T) {
				c, s, left := newCluster(), begin(t), after
				c.rotate(s)
				o := options(&s)
				store := o.Save
				o.Save = func(next rotation.State) error {
					if left--; left == -1 {
						return crash
					}
					return store(next)
				}
				done, err := drive.Run(t.Context(), c, s, o)
				if whole = err == nil; !whole {
					require.ErrorIs(t, err, crash)
					done, err = drive.Run(t.Context(), c, s, o)
				}
				require.NoError(t, err)
				require.Equal(t, "two", done.KeyID)
				require.Equal(t, "two", c.stored["secrets"].KeyID)
				require.Equal(t, "two", c.stored["configmaps"].KeyID)
			})
			if whole {
				require.Greater(t, after, 4)
				break
			}
		}
	}
}

// rotate gives the plugins of a one-plugin rotation their new key_id.
func (c *cluster) rotate(s rotation.State) {
	if s.OnePlugin == nil {
		return
	}
	for _, name := range []string{"cp-1", "cp-2"} {
		c.change(name, func(i *rotation.Instance) { i.Providers["old"] = rotation.Provider{Healthy: true, KeyID: "two"} })
	}
}

func TestWhatFailsIsToldAndTriedAgain(t *testing.T) {
	for _, method := range []string{"WriteConfig", "Canary", "Audit", "Migrate secrets"} {
		bubble.Test(t, func(t *testing.T) {
			c, s := newCluster(), twoPlugins(t)
			c.broken[method] = errOut
			o := options(&s)
			told := 0
			o.Tell = func(turn drive.Turn) {
				for _, p := range turn.Problems {
					require.ErrorIs(t, p, errOut)
					told++
				}
				if m := turn.State.Migration; m != nil && m.Failures["secrets"].Problem != "" {
					require.Equal(t, errOut.Error(), m.Failures["secrets"].Problem)
					told++
				}
				if told >= 3 {
					c.mu.Lock()
					delete(c.broken, method)
					c.mu.Unlock()
				}
			}
			_, err := drive.Run(t.Context(), c, s, o)
			require.NoError(t, err)
			require.GreaterOrEqual(t, told, 1)
		})
	}
}

// An audit that fails at once is not made as often as the machine can.
func TestAnAuditThatFailsIsTriedOnceInAnInterval(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), twoPlugins(t)
		c.broken["Audit"] = errOut
		o := options(&s)
		o.Interval = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		_, err := drive.Run(ctx, c, s, o)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.InDelta(t, 110, c.calls["Audit"], 5)
	})
}

// An apiserver that goes back to its former configuration writes under the
// former key again: what is being rewritten meanwhile would not be all.
func TestAMigrationEndsWhenTheRotationGoesBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), twoPlugins(t)
		held := make(chan struct{})
		c.blocked["Migrate secrets"] = held
		o := options(&s)
		back := false
		o.Tell = func(turn drive.Turn) {
			switch {
			case turn.State.Migration != nil && !back:
				back = true
				c.change("cp-2", func(i *rotation.Instance) { i.ConfigHash = hashes[1] })
			case back && turn.State.Migration == nil:
				c.mu.Lock()
				delete(c.blocked, "Migrate secrets")
				c.mu.Unlock()
			}
		}
		done, err := drive.Run(t.Context(), c, s, o)
		require.NoError(t, err)
		require.Equal(t, "two", done.KeyID)
		require.Equal(t, 2, s.Round)
		require.Equal(t, 2, c.calls["Migrate secrets"])
	})
}

func TestApiserversAreWatchedWhileObjectsAreRewritten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), twoPlugins(t)
		held := make(chan struct{})
		c.blocked["Migrate configmaps"] = held
		o := options(&s)
		turns := 0
		o.Tell = func(turn drive.Turn) {
			if turn.State.Migration != nil {
				if turns++; turns == 100 {
					close(held)
				}
			}
		}
		_, err := drive.Run(t.Context(), c, s, o)
		require.NoError(t, err)
		require.GreaterOrEqual(t, turns, 100)
		require.Equal(t, 1, c.calls["Migrate configmaps"])
	})
}

func TestWatchingGoesOnToTheNextKey(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), onePlugin(t)
		c.rotate(s)
		o := options(&s)
		ctx, stop := context.WithCancelCause(t.Context())
		o.Tell = func(turn drive.Turn) {
			done, ok := turn.Decision.Done()
			switch {
			case ok && done.KeyID == "two":
				for _, name := range []string{"cp-1", "cp-2"} {
					c.change(name, func(i *rotation.Instance) { i.Providers["old"] = rotation.Provider{Healthy: true, KeyID: "three"} })
				}
			case ok:
				stop(errOut)
			}
		}
		require.ErrorIs(t, drive.Watch(ctx, c, s, o), errOut)
		require.Equal(t, "three", s.OnePlugin.Migrated)
		require.Equal(t, "three", c.stored["secrets"].KeyID)
	})
}

func TestNothingIsDoneThatIsNotStored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), twoPlugins(t)
		o := options(&s)
		o.Save = func(rotation.State) error { return errOut }
		_, err := drive.Run(t.Context(), c, s, o)
		require.ErrorIs(t, err, errOut)
		require.Empty(t, c.calls)
		_, err = drive.Run(t.Context(), c, rotation.State{}, o)
		require.ErrorContains(t, err, "rotation state cannot be used")
	})
}

// A count that is under way says nothing yet, and one that is over only of what was
// before it.
func TestACountIsOfTheTimeAtWhichItBegan(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), twoPlugins(t)
		held := make(chan struct{})
		c.blocked["Audit"] = held
		o := options(&s)
		turns := 0
		o.Tell = func(turn drive.Turn) {
			switch {
			case c.times("Audit") == 0:
				return
			case turns < 100:
				require.EqualValues(t, "prove", turn.State.Move.Step, "it is not over")
			}
			switch turns++; turns {
			case 100: // somebody may write behind the count
				c.change("cp-2", func(i *rotation.Instance) { i.Providers["new"] = rotation.Provider{KeyID: "two", Problem: "sealed"} })
			case 101:
				c.change("cp-2", func(i *rotation.Instance) { i.Providers["new"] = rotation.Provider{Healthy: true, KeyID: "two"} })
				close(held)
			}
		}
		_, err := drive.Run(t.Context(), c, s, o)
		require.NoError(t, err)
		require.Equal(t, 3, c.calls["Audit"], "it is begun again")
	})
}

// What a count that has begun too early finds is not waited for.
func TestACountThatCountsNoMoreIsGivenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), twoPlugins(t)
		held, once := make(chan struct{}), sync.Once{}
		c.blocked["Audit"] = held
		o := options(&s)
		o.Tell = func(turn drive.Turn) {
			switch c.times("Audit") {
			case 1:
				c.change("cp-2", func(i *rotation.Instance) { i.Process = "another" })
			case 2:
				once.Do(func() { close(held) })
			}
			require.Empty(t, turn.Problems)
		}
		_, err := drive.Run(t.Context(), c, s, o)
		require.NoError(t, err)
	})
}

// A machine that sleeps looks at nothing, and its monotonic clock stands still.
func TestABreakIsResumedFrom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), onePlugin(t)
		c.rotate(s)
		o := options(&s)
		slept, said := false, 0
		ctx, stop := context.WithCancelCause(t.Context())
		o.Tell = func(turn drive.Turn) {
			_, done := turn.Decision.Done()
			switch {
			case done && !slept:
				slept = true
				time.Sleep(time.Hour)
			case done:
				require.Equal(t, 2, c.times("Audit"))
				stop(errOut)
			case slept:
				said++
			}
		}
		require.ErrorIs(t, drive.Watch(ctx, c, s, o), errOut)
		require.GreaterOrEqual(t, said, int(time.Duration(rotation.DefaultHold)/(5*time.Second)), "it waits a hold")
	})
}

// What is observed while the context ends is that nobody answered.
func TestNothingIsDecidedWhenTheContextEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), twoPlugins(t)
		ctx, stop := context.WithCancelCause(t.Context())
		o := options(&s)
		saved := 0
		o.Save = func(rotation.State) error { saved++; return nil }
		_, err := drive.Run(ctx, ending{c, func() { stop(errOut) }}, s, o)
		require.ErrorIs(t, err, errOut)
		require.Zero(t, saved)
		require.Empty(t, c.calls)
	})
}

// ending is a cluster that is observed when all ends.
type ending struct {
	*cluster
	end func()
}

func (e ending) Observe(ctx context.Context) map[string]rotation.Instance {
	e.end()
	return e.cluster.Observe(ctx)
}

// What a canary comes to when all ends is no problem of an apiserver.
func TestAnInterruptionIsNoProblem(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), twoPlugins(t)
		ctx, stop := context.WithCancelCause(t.Context())
		o := options(&s)
		o.Tell = func(turn drive.Turn) { require.Empty(t, turn.Problems) }
		_, err := drive.Run(ctx, interrupted{c, func() { stop(errOut) }}, s, o)
		require.ErrorIs(t, err, errOut)
	})
}

// interrupted is a cluster to which all ends while a canary is written.
type interrupted struct {
	*cluster
	end func()
}

func (i interrupted) Canary(ctx context.Context, _ rotation.Canary) (rotation.Shown, error) {
	i.end()
	return rotation.Shown{}, ctx.Err()
}

// A rewriting that is stopped did not come to its end.
func TestARewritingThatIsStoppedIsNotThrough(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), twoPlugins(t)
		c.blocked["Migrate secrets"] = make(chan struct{})
		c.forgiving = true
		o := options(&s)
		ctx, stop := context.WithCancelCause(t.Context())
		o.Tell = func(turn drive.Turn) {
			if c.times("Migrate secrets") > 0 {
				stop(errOut)
			}
		}
		_, err := drive.Run(ctx, c, s, o)
		require.ErrorIs(t, err, errOut)
		require.Zero(t, c.calls["Migrate configmaps"], "it was stopped")
		require.Empty(t, s.Migration.Ended)
	})
}

func TestEachActionHasATimeOfItsOwn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), twoPlugins(t)
		c.blocked["WriteConfig"] = make(chan struct{})
		o := options(&s)
		o.ActionTimeout = 50 * time.Second
		var told []error
		ctx, stop := context.WithCancelCause(t.Context())
		o.Tell = func(turn drive.Turn) {
			if told = turn.Problems; len(told) > 0 {
				stop(errOut)
			}
		}
		began := time.Now()
		_, err := drive.Run(ctx, c, s, o)
		require.ErrorIs(t, err, errOut)
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], context.DeadlineExceeded)
		require.InDelta(t, 55, time.Since(began).Seconds(), 6)
	})
}

// A program that writes a file by ssh may take nearly as long as it may, for each of them.
func TestSlowWritesOfSeveralFilesAreNoProblem(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCluster(), twoPlugins(t)
		s.Plan.MaxAge = rotation.Duration(5 * time.Minute)
		o := options(&s)
		o.ActionTimeout = 50 * time.Second
		o.Tell = func(turn drive.Turn) { require.Empty(t, turn.Problems) }
		_, err := drive.Run(t.Context(), slow{c}, s, o)
		require.NoError(t, err)
	})
}

// slow is a cluster whose files take 40 seconds each.
type slow struct{ *cluster }

func (w slow) WriteConfig(ctx context.Context, instance string, to rotation.Stage, hash string) error {
	select {
	case <-time.After(40 * time.Second):
		return w.cluster.WriteConfig(ctx, instance, to, hash)
	case <-ctx.Done():
		return ctx.Err()
	}
}
