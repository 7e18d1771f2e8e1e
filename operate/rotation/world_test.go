package rotation_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// server is an apiserver of the world that the property tests play in, with the
// plugin beside it.
type server struct {
	up, healthy bool
	// plugin is what the plugin names as key_id, told what the server knows of
	// it, and wrote what its latest write was under.
	plugin, told, wrote string
	wroteAt             time.Time
	// disk and effect are stages of its configuration.
	disk, effect int
	report       rotation.Instance
	shown        rotation.Shown
}

// world is a cluster, a key that rotates, and one who drives the rotation. What
// is common to both plans is here.
type world struct {
	t       *rapid.T
	now     time.Time
	servers map[string]*server
	// stored is, by resource, what each object is stored under: provider and
	// key_id.
	stored     map[string][][2]string
	migrations map[string]rotation.Progress
	audit      *rotation.Audit
	state      rotation.State
	decision   rotation.Decision

	// What was seen by one who looks at the same observations.
	agreed      string
	agreedSince time.Time
	failedAt    map[string]time.Time
	begun       map[rotation.Goal][]string
}

const (
	maxAge     = 2 * time.Minute
	retryAfter = 5 * time.Minute
)

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: start, servers: map[string]*server{}, stored: map[string][][2]string{},
		migrations: map[string]rotation.Progress{}, failedAt: map[string]time.Time{}, begun: map[rotation.Goal][]string{}}
	for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "servers")] {
		w.servers[name] = &server{up: true, healthy: true}
	}
	return w
}

func (w *world) plan(hashes func(name string) []string) rotation.Plan {
	p := rotation.Plan{Configs: map[string][]string{}, Resources: slices.Sorted(maps.Keys(w.stored)),
		Hold: rotation.Duration(hold), MaxAge: rotation.Duration(maxAge), RetryAfter: rotation.Duration(retryAfter)}
	for name := range w.servers {
		p.Configs[name] = hashes(name)
	}
	return p
}

func (w *world) server() (string, *server) {
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(w.servers))).Draw(w.t, "server")
	return name, w.servers[name]
}

// object is some object: its resource and its place there.
func (w *world) object() (string, int) {
	resource := rapid.SampledFrom(w.resources()).Draw(w.t, "resource")
	return resource, rapid.IntRange(0, len(w.stored[resource])-1).Draw(w.t, "object")
}

func (w *world) resources() []string { return slices.Sorted(maps.Keys(w.stored)) }

// watch is a while in which somebody looks all the time.
func (w *world) watch(look, step func()) {
	for range rapid.IntRange(1, 7).Draw(w.t, "minutes") {
		w.pass(time.Minute)
		look()
		step()
	}
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

// kill, and start again: what the server knew of its writes is gone.
func (w *world) kill(s *server) { s.up = false }

func (s *server) start() {
	if !s.up {
		*s = server{up: true, healthy: s.healthy, plugin: s.plugin, told: s.plugin, disk: s.disk, effect: s.disk, report: s.report, shown: s.shown}
	}
}

// rewrite is a migration of a resource through servers that happen to answer.
func (w *world) rewrite(resource string, as func(*server) [2]string) {
	p, running := w.migrations[resource]
	if !running || p.Phase != rotation.Running {
		return
	}
	for i := range w.stored[resource] {
		_, s := w.server()
		if !s.up {
			p.Phase, p.EndedAt, p.Problem = rotation.Failed, w.now, "connection refused"
			w.migrations[resource] = p
			return
		}
		if under := as(s); under[1] != "" {
			w.stored[resource][i] = under
			s.wrote, s.wroteAt = under[1], w.now
		}
	}
	p.Phase, p.EndedAt = rotation.Succeeded, w.now
	w.migrations[resource] = p
}

// miss is a migration that takes for done what is not.
func (w *world) miss(resource string) {
	if p, ok := w.migrations[resource]; ok && p.Phase == rotation.Running {
		p.Phase, p.EndedAt = rotation.Succeeded, w.now
		w.migrations[resource] = p
	}
}

func (w *world) count() {
	w.audit = &rotation.Audit{StartedAt: w.now, Etcds: counted}
	for resource, objects := range w.stored {
		for _, under := range objects {
			w.audit.Counts = append(w.audit.Counts, rotation.Count{Resource: resource, Provider: under[0], KeyID: under[1], Objects: 1})
		}
	}
}

// crash loses whatever the driver has not in its file.
func (w *world) crash() {
	w.migrations, w.audit = map[string]rotation.Progress{}, nil
	for _, s := range w.servers {
		s.shown = rotation.Shown{}
	}
	data, err := w.state.Encode()
	require.NoError(w.t, err)
	w.state, err = rotation.Decode(data)
	require.NoError(w.t, err)
	w.state = rotation.Resume(w.state, w.now)
}

// canary writes an object through a server, and keeps what that showed if all others
// can read it.
func (w *world) canary(s *server, as func(*server) [2]string, reads func(s *server, provider string) bool) {
	under := as(s)
	if !s.up || under[1] == "" {
		return
	}
	resource := w.resources()[0]
	w.stored[resource][0], s.wrote, s.wroteAt = under, under[1], w.now
	for _, other := range w.servers {
		if !other.up || !reads(other, under[0]) {
			return
		}
	}
	s.shown = rotation.Shown{At: w.now, Identities: rotation.Identities(w.observation().Instances), KeyIDs: map[string]string{under[0]: under[1]}, Resources: []string{resource}, Etcds: []uint64{1}}
}

func (w *world) observation() rotation.Observation {
	o := rotation.Observation{Instances: map[string]rotation.Instance{}, Audit: w.audit, Shown: map[string]rotation.Shown{}}
	for name, s := range w.servers {
		if !s.report.CheckedAt.IsZero() {
			i := s.report
			if w.state.Move != nil {
				i.FileHash = hashOf(name)[s.disk]
			}
			o.Instances[name] = i
		}
		if !s.shown.At.IsZero() {
			o.Shown[name] = s.shown
		}
	}
	for _, resource := range w.resources() {
		if p, ok := w.migrations[resource]; ok {
			o.Migrations = append(o.Migrations, p)
		}
	}
	return o
}

// think calls Next, and holds it to being a function.
func (w *world) think() (before rotation.State, o rotation.Observation) {
	before, o = w.state, w.observation()
	was := snapshot(before, o)
	w.state, w.decision = rotation.Next(before, o, w.now)
	require.Equal(w.t, was, snapshot(before, o), "Next changed what it was given")
	again, decision := rotation.Next(before, o, w.now)
	require.Equal(w.t, snapshot(w.state, w.decision), snapshot(again, decision), "Next does not always say the same")
	require.NoError(w.t, w.state.Validate())
	require.NotEmpty(w.t, len(w.decision.Actions)+len(w.decision.Waiting), "it says why there is nothing to do")
	w.checkMigrations(before)
	return before, o
}

func snapshot(v ...any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// checkMigrations holds what is asked for to what is known of migrations.
func (w *world) checkMigrations(before rotation.State) {
	for resource, p := range w.migrations {
		if p.Phase == rotation.Failed {
			w.failedAt[fmt.Sprint(p.Goal, resource)] = p.EndedAt
		}
	}
	if m := w.state.Migration; m != nil && before.Migration != nil && m.Goal == before.Migration.Goal {
		for resource := range before.Migration.Ended {
			require.Contains(w.t, m.Ended, resource)
		}
	}
	for _, a := range w.decision.Actions {
		m, ok := a.(rotation.Migrate)
		if !ok {
			continue
		}
		require.NotEmpty(w.t, w.agreed, "I10: a migration begins while the apiservers do not agree")
		for _, resource := range m.Resources {
			p := w.migrations[resource]
			require.False(w.t, p.Goal == m.Goal && p.Phase != rotation.Failed, "I16: %s is under way or through", resource)
			if at, failed := w.failedAt[fmt.Sprint(m.Goal, resource)]; failed {
				require.GreaterOrEqual(w.t, w.now.Sub(at), retryAfter, "I16: %s is begun too soon", resource)
			}
		}
	}
}

// agree keeps the clock of somebody else, who looks at the same reports.
func (w *world) agree(o rotation.Observation, provider string) {
	keys := map[string]bool{}
	for name := range w.servers {
		p, i := o.Instances[name].Providers[provider], o.Instances[name]
		ok := !i.CheckedAt.IsZero() && w.now.Sub(i.CheckedAt) <= maxAge && p.Healthy && p.KeyID != "" && p.KeyID == p.WroteKeyID
		if !ok {
			w.agreed = ""
			return
		}
		keys[p.KeyID] = true
	}
	agreed := ""
	if len(keys) == 1 {
		agreed = slices.Collect(maps.Keys(keys))[0]
	}
	if agreed != w.agreed {
		w.agreed, w.agreedSince = agreed, w.now
	}
}

// start carries out what the decision says about migrations.
func (w *world) startMigrations() {
	for _, a := range w.decision.Actions {
		if m, ok := a.(rotation.Migrate); ok {
			for _, resource := range m.Resources {
				w.migrations[resource] = rotation.Progress{Goal: m.Goal, Resource: resource, Phase: rotation.Running}
			}
		}
	}
}
