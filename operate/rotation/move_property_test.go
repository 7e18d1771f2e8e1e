package rotation_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// twoWorld is a cluster whose plugins know one version of the key each.
type twoWorld struct {
	*world
	wroteNew map[string]time.Time
}

func hashOf(name string) []string {
	var all []string
	for stage := range rotation.Stages {
		all = append(all, fmt.Sprintf("%s%d", name, stage))
	}
	return all
}

func newTwoWorld(t *rapid.T) *twoWorld {
	w := &twoWorld{world: newWorld(t), wroteNew: map[string]time.Time{}}
	w.stored["secrets"] = [][2]string{{"old", keyA}, {"old", keyA}}
	s, err := rotation.NewMove(w.plan(hashOf), []string{"old"}, []string{"new"})
	require.NoError(t, err)
	w.state = s
	return w
}

// as is what a server writes with, and reads what it can read.
func (w *twoWorld) as(s *server) [2]string {
	if s.effect >= 2 {
		return [2]string{"new", keyB}
	}
	return [2]string{"old", keyA}
}

func reads(effect int, provider string) bool {
	return provider == "old" && effect < 3 || provider == "new" && effect > 0
}

func (w *twoWorld) look(name string, s *server) {
	if !s.up {
		return
	}
	s.report = rotation.Instance{CheckedAt: w.now, ConfigHash: hashOf(name)[s.effect], Providers: map[string]rotation.Provider{}}
	for provider, key := range map[string]string{"old": keyA, "new": keyB} {
		if !reads(s.effect, provider) {
			continue
		}
		p := rotation.Provider{Healthy: s.healthy, KeyID: key}
		if s.wrote == key {
			p.WroteKeyID, p.WroteAt = key, s.wroteAt
		}
		s.report.Providers[provider] = p
	}
}

func (w *twoWorld) write(s *server) {
	if s.up {
		resource, i := w.object()
		w.stored[resource][i] = w.as(s)
		s.wrote, s.wroteAt = w.as(s)[1], w.now
	}
}

// checkReads is what it is all for: every server can read every object.
func (w *twoWorld) checkReads() {
	for name, s := range w.servers {
		for _, objects := range w.stored {
			for _, under := range objects {
				require.True(w.t, !s.up || reads(s.effect, under[0]), "I1, I3: %s cannot read what is under %s", name, under[0])
			}
		}
	}
}

func (w *twoWorld) step() {
	w.agree(w.observation(), "new")
	before, o := w.think()
	for _, a := range w.decision.Actions {
		write, ok := a.(rotation.WriteConfig)
		if !ok {
			continue
		}
		to := slices.Index(rotation.Stages[:], write.Stage)
		for name := range w.servers {
			stage := slices.Index(hashOf(name), o.Instances[name].ConfigHash)
			require.GreaterOrEqual(w.t, stage, to-1, "I1, I2: %s is asked for while %s is at %d", write.Stage, name, stage)
			require.LessOrEqual(w.t, w.now.Sub(o.Instances[name].CheckedAt), maxAge, "I2: by an old report")
		}
		if write.Stage == rotation.Removed {
			require.Nil(w.t, w.state.Migration, "I14: the old provider goes during a migration")
			require.True(w.t, before.Move.Step == "remove" || w.audit != nil, "I3: without a look at what is stored")
		}
	}
	if before.Migration == nil && w.state.Migration != nil {
		require.GreaterOrEqual(w.t, w.now.Sub(w.agreedSince), hold, "I11: a migration begins before its time")
	}
	if done, ok := w.decision.Done(); ok {
		require.Equal(w.t, rotation.Done{KeyID: keyB, Objects: int64(len(w.stored["secrets"])), Etcds: counted, Providers: []string{"old"}, KeyIDs: done.KeyIDs}, done)
		require.NotContains(w.t, done.KeyIDs, keyB)
		for _, under := range w.stored["secrets"] {
			require.Equal(w.t, "new", under[0], "I3: something needs the old plugin")
		}
	}
	w.checkReads()
}

// writeFiles carries out the part of a decision that is about files, some of it
// when the driver crashes on its way.
func (w *twoWorld) writeFiles(upTo int) {
	for _, a := range w.decision.Actions {
		write, ok := a.(rotation.WriteConfig)
		if !ok {
			continue
		}
		for i, name := range slices.Sorted(mapKeys(write.Hashes)) {
			if i < upTo {
				w.servers[name].disk = slices.Index(hashOf(name), write.Hashes[name])
			}
		}
	}
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (w *twoWorld) actions() map[string]func(*rapid.T) {
	one := func(do func(*server)) func(*rapid.T) {
		return func(*rapid.T) { _, s := w.server(); do(s) }
	}
	return map[string]func(*rapid.T){
		"write":       one(w.write),
		"reload":      one(func(s *server) { s.effect = s.disk }),
		"kill":        one(w.kill),
		"start":       one((*server).start),
		"sicken":      one(func(s *server) { s.healthy = false }),
		"heal":        one(func(s *server) { s.healthy = true }),
		"look":        func(*rapid.T) { name, s := w.server(); w.look(name, s) },
		"look at all": func(*rapid.T) { w.lookAll() },
		"pass":        func(*rapid.T) { w.pass(time.Duration(rapid.IntRange(1, 400).Draw(w.t, "seconds")) * time.Second) },
		"watch":       func(*rapid.T) { w.watch(w.lookAll, w.step) },
		"migrate":     func(*rapid.T) { w.rewrite("secrets", w.as) },
		"fail":        func(*rapid.T) { w.fail() },
		"miss":        func(*rapid.T) { w.miss("secrets") },
		"count":       func(*rapid.T) { w.count() },
		"crash":       func(*rapid.T) { w.crash() },
		"begin":       func(*rapid.T) { w.startMigrations() },
		"carry out":   func(*rapid.T) { w.round(rapid.IntRange(0, 3).Draw(w.t, "files")) },
		"all is well": func(*rapid.T) { w.calm(); w.round(3); w.calm() },
		"":            func(*rapid.T) { w.step() },
	}
}

func (w *twoWorld) lookAll() {
	for name, s := range w.servers {
		w.look(name, s)
	}
}

func (w *twoWorld) calm() {
	for _, s := range w.servers {
		s.start()
		s.healthy, s.effect = true, s.disk
		w.write(s)
	}
	w.lookAll()
}

func (w *twoWorld) round(files int) {
	w.step()
	w.startMigrations()
	w.writeFiles(files)
	for _, a := range w.decision.Actions {
		switch a := a.(type) {
		case rotation.Canary:
			w.canary(w.servers[a.Instance], w.as, func(s *server, provider string) bool { return reads(s.effect, provider) })
		case rotation.RunAudit:
			w.count()
		}
	}
	w.rewrite("secrets", w.as)
	w.pass(time.Minute)
}

func TestTwoPluginsKeepTheirInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwoWorld(t)
		t.Repeat(w.actions())
		for range 60 {
			w.calm()
			w.round(3)
		}
		_, ok := w.decision.Done()
		require.True(t, ok, "a calm cluster comes to the end: %v", w.decision)
	})
}
