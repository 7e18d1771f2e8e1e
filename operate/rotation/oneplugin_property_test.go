package rotation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// oneWorld is a cluster with a plugin whose key_id changes.
type oneWorld struct {
	*world
	version int
}

func keyOf(version int) string { return hashed.ID(string(rune('0' + version))) }

func newOneWorld(t *rapid.T) *oneWorld {
	w := &oneWorld{world: newWorld(t), version: 1}
	for _, s := range w.servers {
		s.plugin, s.told = keyOf(1), keyOf(1)
	}
	for _, resource := range []string{"secrets", "configmaps"}[:rapid.IntRange(1, 2).Draw(t, "resources")] {
		w.stored[resource] = [][2]string{{"kms", keyOf(1)}, {"", ""}}
	}
	from := rapid.SampledFrom([]string{"", keyOf(1)}).Draw(t, "from")
	s, err := rotation.NewOnePlugin(w.plan(func(string) []string { return []string{"h"} }), []string{"kms"}, from)
	require.NoError(t, err)
	w.state = s
	return w
}

func (w *oneWorld) as(s *server) [2]string { return [2]string{"kms", s.told} }

func (w *oneWorld) look(s *server) {
	if s.up {
		s.report = rotation.Instance{CheckedAt: w.now, ConfigHash: "h", Providers: map[string]rotation.Provider{
			"kms": {Healthy: s.healthy, KeyID: s.told, WroteKeyID: s.wrote, WroteAt: s.wroteAt}}}
	}
}

func (w *oneWorld) write(s *server) {
	if s.up && s.told != "" {
		resource, i := w.object()
		w.stored[resource][i] = w.as(s)
		s.wrote, s.wroteAt = s.told, w.now
	}
}

// step observes, thinks, and holds the outcome to the invariants.
func (w *oneWorld) step() {
	w.agree(w.observation(), "kms")
	before, _ := w.think()
	was, is := before.OnePlugin, w.state.OnePlugin
	if is.Candidate != nil {
		require.Equal(w.t, w.agreed, is.Candidate.KeyID)
		require.False(w.t, is.Candidate.Since.Before(w.agreedSince), "I11: the clock runs on through a break")
	}
	if is.Target != was.Target {
		require.Equal(w.t, w.agreed, is.Target, "I10: the target is not what all agree on")
		require.GreaterOrEqual(w.t, w.now.Sub(w.agreedSince), hold, "I11: promoted before its time")
		require.Equal(w.t, was.Target, is.Migrated, "I12: the target changed during a migration")
	}
	if before.Migration != nil && w.state.Migration != nil && before.Migration.Goal != w.state.Migration.Goal {
		w.ended(before.Migration)
	}
	if is.Migrated != was.Migrated {
		require.Equal(w.t, before.Migration.Goal.KeyID, is.Migrated, "I13: migrated is not what the migration was for")
		w.ended(before.Migration)
	}
	for _, a := range w.decision.Actions {
		_, writes := a.(rotation.WriteConfig)
		require.False(w.t, writes, "I9, I14: no configuration is touched")
	}
	if done, ok := w.decision.Done(); ok {
		w.checkDone(done)
	}
}

// ended holds a migration to having come to its end everywhere.
func (w *oneWorld) ended(m *rotation.Migration) {
	for _, resource := range m.Resources {
		_, before := m.Ended[resource]
		p := w.migrations[resource]
		require.True(w.t, before || p.Goal == m.Goal && p.Phase == rotation.Succeeded, "I13: %s is not through", resource)
	}
}

// checkDone looks at the truth: in this world no server goes back to an older
// key, so what may go is needed by nobody, and never will be.
func (w *oneWorld) checkDone(done rotation.Done) {
	for _, former := range done.KeyIDs {
		for resource, objects := range w.stored {
			for _, under := range objects {
				require.NotEqual(w.t, former, under[1], "I3: %s needs what may go", resource)
			}
		}
		for name, s := range w.servers {
			require.False(w.t, s.up && s.told == former, "I3: %s writes under what may go", name)
		}
	}
	for resource, objects := range w.stored {
		for _, under := range objects {
			require.NotEqual(w.t, "", under[0], "%s is stored in plain", resource)
		}
	}
}

func (w *oneWorld) actions() map[string]func(*rapid.T) {
	one := func(do func(*server)) func(*rapid.T) {
		return func(*rapid.T) { _, s := w.server(); do(s) }
	}
	catchUp := func(s *server) { s.plugin = keyOf(w.version) }
	poll := func(s *server) {
		if s.up && s.healthy {
			s.told = s.plugin
		}
	}
	return map[string]func(*rapid.T){
		"rotate":    func(*rapid.T) { w.version = min(w.version+1, 9) },
		"catch up":  one(catchUp),
		"poll":      one(poll),
		"write":     one(w.write),
		"look":      one(w.look),
		"kill":      one(w.kill),
		"start":     one((*server).start),
		"sicken":    one(func(s *server) { s.healthy = false }),
		"heal":      one(func(s *server) { s.healthy = true }),
		"settle":    func(*rapid.T) { w.settle() },
		"pass":      func(*rapid.T) { w.pass(time.Duration(rapid.IntRange(1, 400).Draw(w.t, "seconds")) * time.Second) },
		"watch":     func(*rapid.T) { w.watch(w.lookAll, w.step) },
		"migrate":   func(*rapid.T) { r, _ := w.object(); w.rewrite(r, w.as) },
		"fail":      func(*rapid.T) { w.fail() },
		"miss":      func(*rapid.T) { r, _ := w.object(); w.miss(r) },
		"count":     func(*rapid.T) { w.count() },
		"crash":     func(*rapid.T) { w.crash() },
		"begin":     func(*rapid.T) { w.startMigrations() },
		"look all":  func(*rapid.T) { w.lookAll() },
		"think":     func(*rapid.T) { w.step() },
		"carry out": func(*rapid.T) { w.round() },
		"":          func(*rapid.T) { w.step() },
	}
}

func (w *world) fail() {
	resource, _ := w.object()
	if p, ok := w.migrations[resource]; ok && p.Phase == rotation.Running {
		p.Phase, p.EndedAt, p.Problem = rotation.Failed, w.now, "forbidden"
		w.migrations[resource] = p
	}
}

func (w *oneWorld) lookAll() {
	for _, s := range w.servers {
		w.look(s)
	}
}

// settle is a calm in which all servers get the key of the day.
func (w *oneWorld) settle() {
	for _, s := range w.servers {
		s.start()
		s.healthy, s.plugin, s.told = true, keyOf(w.version), keyOf(w.version)
		w.write(s)
	}
	w.lookAll()
}

// round lets the driver do its work once.
func (w *oneWorld) round() {
	w.lookAll()
	w.step()
	w.startMigrations()
	for _, a := range w.decision.Actions {
		switch a := a.(type) {
		case rotation.Canary:
			w.canary(w.servers[a.Instance], w.as, func(*server, string) bool { return true })
		case rotation.RunAudit:
			w.count()
		}
	}
	for _, resource := range w.resources() {
		w.rewrite(resource, w.as)
	}
	w.pass(time.Minute)
}

func TestOnePluginKeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newOneWorld(t)
		t.Repeat(w.actions())
		w.settle()
		for range 60 { // minutes: a hold, two rounds of a migration and their waits, twice
			w.round()
		}
		if w.version == 1 && w.state.OnePlugin.From == keyOf(1) && w.state.OnePlugin.Target == "" {
			return // nothing was rotated
		}
		done, ok := w.decision.Done()
		require.True(t, ok, "I15: a calm cluster comes to rest: %v", w.decision)
		require.Equal(t, keyOf(w.version), done.KeyID, "I15: under the key that it has")
		require.Equal(t, keyOf(w.version), w.state.OnePlugin.Migrated, "I15: which it was migrated to")
	})
}
