package rotation

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// At every step a process is killed, and started again at once. The next step may come,
// and with it the next kill, before it is back.
func TestARotationOutlivesKill9AtEveryStep(t *testing.T) {
	t.Run("two plugins", func(t *testing.T) {
		old, new := newKeys(t), newKeys(t)
		c := startCluster(t, "old", old, harness.HurriedServer)
		c.startPlugins(t, "new", new)
		load := startLoad(t, c)
		c.killAtEveryStep(t, load, c.rotate(t, "two-plugins", append(c.toNew(), unhurried...)...))
		c.requireStored(t, load, "new", new.newest(t))
		for _, n := range c.nodes {
			c.stopPlugin(n, "old")
		}
		c.restart()
		load.RequireRead(t)
	})
	t.Run("one plugin", func(t *testing.T) {
		if !*long {
			t.Skip("it has fewer steps than the other, which are killed in the same way: run it with -long")
		}
		k := newKeys(t)
		c := startCluster(t, "kms", k, harness.HurriedServer)
		load := startLoad(t, c)
		k.rotate(t)
		c.killAtEveryStep(t, load, c.rotate(t, "one-plugin", append([]string{"--provider", "kms"}, unhurried...)...))
		c.requireStored(t, load, "kms", k.newest(t))
		for _, n := range c.nodes {
			c.replacePlugin(t, n, "kms", newestPlugin, k.Path())
		}
		c.restart()
		load.RequireRead(t)
	})
}

// unhurried has even the shortest step last long enough to be seen.
var unhurried = []string{"--rate", "1000", "--interval", "200ms", "--hold", "2s"}

// killAtEveryStep returns once the rotation is finished, and requires that no request
// failed but those that could not be answered.
func (c *cluster) killAtEveryStep(t *testing.T, load *traffic.Load, command *command) {
	t.Helper()
	newKiller(t, c, load, command).finish(t)
}

// killer kills a process at every step of a rotation, soon after it begins.
type killer struct {
	cluster *cluster
	load    *traffic.Load
	command *command
	random  *rand.Rand
	// onlyAtrest spares all others.
	onlyAtrest bool

	steps []rotation.Planned
	met   []int // steps
	kinds []int // those whose turn comes next
	due   []time.Time
	away  sync.WaitGroup // those that were killed and are not back yet
}

func newKiller(t *testing.T, c *cluster, load *traffic.Load, command *command) *killer {
	t.Helper()
	t.Logf("-seed=%d", *seed)
	return &killer{cluster: c, load: load, command: command, random: rand.New(rand.NewPCG(uint64(*seed), 0))}
}

// until kills until condition holds.
func (k *killer) until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	traffic.Until(t, what, func() bool {
		if s := k.command.state(t); s.Version > 0 {
			k.steps = s.Steps()
			k.meet(t, slices.IndexFunc(k.steps, func(p rotation.Planned) bool { return p.Now }))
		}
		k.strike(t)
		return condition()
	})
}

// finish kills until the rotation is finished. It requires that somebody was killed at
// every step, and that no request failed but those that could not be answered.
func (k *killer) finish(t *testing.T) {
	t.Helper()
	k.until(t, "the rotation is finished", func() bool { return len(k.due) == 0 && k.command.finished(t) })
	k.away.Wait()
	t.Logf("atrest rotate:\n%s", k.command.Log())
	require.GreaterOrEqual(t, len(k.met), len(k.steps)-1, "a step was missed")
	k.load.More(t, 20)
	k.load.RequireNoFailure(t)
	k.load.RequireRead(t)
}

// victim is a process to kill.
type victim struct {
	name    string
	process *harness.Process
	// needed are the apiservers that may refuse a request meanwhile: one, all if it is
	// empty, none if it is "-".
	needed string
	// back reports whether what needs it has found it again since a moment.
	back func(ctx context.Context, since time.Time) bool
}

const nobody = "-"

// meet notes a step, and that somebody is to die in it.
func (k *killer) meet(t *testing.T, step int) {
	t.Helper()
	if step >= 0 && !slices.Contains(k.met, step) {
		k.met = append(k.met, step)
		k.due = append(k.due, time.Now().Add(time.Duration(k.random.Int64N(int64(200*time.Millisecond)))))
		t.Logf("step %d", step+1)
	}
}

// strike kills those whose time has come.
func (k *killer) strike(t *testing.T) {
	t.Helper()
	for len(k.due) > 0 && time.Now().After(k.due[0]) {
		k.due = k.due[1:]
		k.kill(t, k.choose())
	}
}

// kill ends a process as kill -9 does, and starts it again.
func (k *killer) kill(t *testing.T, v victim) {
	t.Helper()
	t.Logf("kill -9 of %s", v.name)
	over := k.load.Outage(v.needed)
	v.process.Kill()
	v.process.Restart()
	ctx, since := t.Context(), time.Now()
	k.away.Go(func() {
		defer over()
		for ctx.Err() == nil && !v.back(ctx, since) {
			time.Sleep(30 * time.Millisecond)
		}
	})
}

// choose takes a process by chance, of each kind equally often.
func (k *killer) choose() victim {
	c, n := k.cluster, k.cluster.nodes[k.random.IntN(len(k.cluster.nodes))]
	providers := slices.Sorted(maps.Keys(n.plugins))
	provider := providers[k.random.IntN(len(providers))]
	kinds := []victim{
		{"atrest", k.command.Process, nobody, func(context.Context, time.Time) bool { return true }},
		{"etcd", c.etcds[k.random.IntN(len(c.etcds))].Process, "", func(ctx context.Context, _ time.Time) bool { return c.current(ctx, k.load) }},
		{n.name, n.Process, n.name, func(context.Context, time.Time) bool { return n.ready() }},
		{"the plugin of " + provider + " of " + n.name, n.plugins[provider], n.name, func(_ context.Context, since time.Time) bool {
			return n.reaches(provider, since)
		}},
	}
	if k.onlyAtrest {
		return kinds[0]
	}
	if len(k.kinds) == 0 {
		k.kinds = k.random.Perm(len(kinds))
	}
	kind := k.kinds[0]
	k.kinds = k.kinds[1:]
	return kinds[kind]
}

// current reports whether every apiserver is ready and has in its watch cache what was
// written last.
func (c *cluster) current(ctx context.Context, load *traffic.Load) bool {
	for _, n := range c.nodes {
		if !n.ready() || load.Current(ctx, n.name) != nil {
			return false
		}
	}
	return true
}
