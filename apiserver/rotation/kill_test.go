package rotation

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// At every step a process is killed and started again.
func TestARotationOutlivesKill9AtEveryStep(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	random := rand.New(rand.NewPCG(uint64(*seed), 0))
	old, new := newKeys(t), newKeys(t)
	c := startCluster(t, "old", old, harness.HurriedServer)
	c.startPlugins(t, "new", new)
	load := startLoad(t, c)
	load.more(t, 20)

	rotation := c.rotate(t, "two-plugins", c.toNew()...)
	steps, next := map[string]bool{}, c.victims(rotation, load, random)
	until(t, "the rotation is finished", func() bool {
		s := rotation.state(t)
		if s.TwoPlugins == nil {
			return rotation.finished(t)
		}
		step := fmt.Sprintf("%s, round %d", s.TwoPlugins.Step, s.Round)
		if !steps[step] {
			steps[step] = true
			v := next()
			t.Logf("step %s: kill -9 of %s", step, v.name)
			v.kill(t)
		}
		return rotation.finished(t)
	})
	t.Logf("atrest rotate:\n%s", rotation.Log())
	load.more(t, 20)
	load.requireNoFailure(t)
	c.requireStored(t, load, "new", new.newest(t))
	for _, n := range c.nodes {
		c.stopPlugin(n, "old")
	}
	c.requireRead(t, load)
	c.restart()
	c.requireRead(t, load)
}

// victim is a process to kill.
type victim struct {
	name    string
	process *harness.Process
	// outage notes what may fail meanwhile; nil if nothing may.
	outage func() (over func())
	// ready returns once it is there again; nil if nobody needs to wait.
	ready func(t *testing.T)
}

// kill ends the process as kill -9 does and starts it again.
func (v victim) kill(t *testing.T) {
	t.Helper()
	over := func() {}
	if v.outage != nil {
		over = v.outage()
	}
	v.process.Kill()
	v.process.Restart()
	if v.ready != nil {
		v.ready(t)
	}
	over()
}

// victims chooses processes by chance, of all kinds equally often.
func (c *cluster) victims(rotation *command, load *load, random *rand.Rand) (next func() victim) {
	one := func() *node { return c.nodes[random.IntN(len(c.nodes))] }
	kinds := []func() victim{
		func() victim { return victim{name: "atrest", process: rotation.Process} },
		func() victim {
			return victim{"etcd", c.etcd, func() func() { return load.outage("") }, func(t *testing.T) { c.settle(t, load) }}
		},
		func() victim {
			n := one()
			return victim{n.name, n.Process, func() func() { return load.outage(n.name) }, func(*testing.T) { n.WaitFor("/readyz") }}
		},
		func() victim {
			n, provider := one(), []string{"old", "new"}[random.IntN(2)]
			name := "plugin " + provider + " of " + n.name
			return victim{name, n.plugins[provider], func() func() { return load.outage(n.name) }, func(t *testing.T) {
				n.waitForPlugin(t, provider)
			}}
		},
	}
	var order []int
	return func() victim {
		if len(order) == 0 {
			order = random.Perm(len(kinds))
		}
		kind := order[0]
		order = order[1:]
		return kinds[kind]()
	}
}

// settle returns once every apiserver is ready and reads what was written last.
func (c *cluster) settle(t *testing.T, load *load) {
	t.Helper()
	c.wait()
	for _, client := range load.clients {
		until(t, client.apiserver+" is up to date", func() bool {
			return load.list(load.cached)(t.Context(), client) == nil
		})
	}
}
