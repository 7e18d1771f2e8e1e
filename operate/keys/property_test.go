package keys_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/keys"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// country is a larger world than a town, of which some of what may happen is tried.
type country struct {
	t       *rapid.T
	now     time.Time
	in      keys.Input
	out     keys.Output
	servers map[string]*node
	// stored is, by resource, what each object is stored under: provider and the hash of a
	// key_id.
	stored map[string][][2]string
	// versions are those of the KEKs at their KMS, by keyID.
	versions map[bundle.KeyID]int
	work     map[string]rotation.Progress
	audit    *rotation.Audit
	looked   time.Time
	plain    bool // somebody wanted plain text, once
	inUse    bool // a key was in use
	highest  bundle.KeyID
	made     int
	bundles  map[string]bool // the hashes of configurations that were made one of
}

// node is an apiserver.
type node struct {
	up           bool
	file, effect keys.Config
	told         map[bundle.KeyID]int
	report       rotation.Instance
	shown        rotation.Shown
}

var (
	kinds     = []keys.Mode{keys.Identity, keys.AESCBC, keys.AESGCM, keys.Secretbox, keys.KMS, keys.KMS}
	resources = [][]string{{"secrets"}, {"configmaps", "secrets"}}
)

func newCountry(t *rapid.T) *country {
	c := &country{t: t, now: start, looked: start, servers: map[string]*node{}, stored: map[string][][2]string{}, versions: map[bundle.KeyID]int{}, work: map[string]rotation.Progress{}, bundles: map[string]bool{}}
	for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "apiservers")] {
		c.servers[name] = &node{up: true, told: map[bundle.KeyID]int{}}
	}
	for _, resource := range resources[1] {
		c.stored[resource] = [][2]string{{rotation.Plain, ""}, {rotation.Plain, ""}}
	}
	c.in.Secret, c.in.Random = secret, random
	c.in.Times = keys.Times{Hold: 2 * time.Minute, MaxAge: 2 * time.Minute, RetryAfter: 2 * time.Minute}
	c.in.Desired, c.in.Verdicts = wants(keys.Identity, nil), map[string]keys.Verdict{}
	return c
}

func (c *country) names() []string { return slices.Sorted(maps.Keys(c.servers)) }

func (c *country) node() *node { return c.servers[rapid.SampledFrom(c.names()).Draw(c.t, "apiserver")] }

func (c *country) keyID(p keys.Provider, version int) string {
	if p.Mode != keys.KMS {
		return ""
	}
	return hashed.ID(fmt.Sprint(p.KeyID, " ", version))
}

// writes is what a node writes a resource with.
func (c *country) writes(n *node, resource string) [2]string {
	for _, e := range n.effect.Entries {
		if e.Resource == resource {
			return [2]string{e.Providers[0].Name, c.keyID(e.Providers[0], n.told[e.Providers[0].KeyID])}
		}
	}
	return [2]string{rotation.Plain, ""}
}

func (n *node) reads(resource, provider string) bool {
	listed := false
	for _, e := range n.effect.Entries {
		if e.Resource != resource {
			continue
		}
		listed = true
		if slices.ContainsFunc(e.Providers, func(p keys.Provider) bool { return p.Name == provider }) {
			return true
		}
	}
	return !listed && provider == rotation.Plain
}

func (c *country) look(name string) {
	n := c.servers[name]
	if !n.up || n.effect.Hash == "" {
		return
	}
	n.report = rotation.Instance{CheckedAt: c.now, ConfigHash: n.effect.Hash, FileHash: n.file.Hash, Complete: true, Providers: map[string]rotation.Provider{}}
	for _, e := range n.effect.Entries {
		for i, p := range e.Providers {
			if p.Mode == keys.KMS {
				told := rotation.Provider{Healthy: true, KeyID: c.keyID(p, n.told[p.KeyID])}
				if i == 0 {
					told.WroteKeyID, told.WroteAt = told.KeyID, c.now
				}
				n.report.Providers[p.Name] = told
			}
		}
	}
}

func (c *country) observe() {
	o := rotation.Observation{Instances: map[string]rotation.Instance{}, Shown: map[string]rotation.Shown{}, Audit: c.audit}
	c.in.Expected, c.in.Present, c.in.Kept = c.names(), nil, nil
	for name, n := range c.servers {
		if !n.report.CheckedAt.IsZero() {
			i := n.report
			i.FileHash = n.file.Hash // which the controller wrote
			o.Instances[name] = i
		}
		if !n.shown.At.IsZero() {
			o.Shown[name] = n.shown
		}
		for _, config := range []keys.Config{n.file, n.effect} {
			for _, e := range config.Entries {
				for _, p := range e.Providers {
					if p.KeyID > 0 {
						c.in.Present = append(c.in.Present, p.KeyID)
					}
				}
			}
		}
	}
	for _, p := range c.work {
		o.Migrations = append(o.Migrations, p)
	}
	c.in.Observed, c.in.Resumed = o, c.in.Resumed || c.now.Sub(c.looked) > c.in.Times.MaxAge
}

// turn is one of the controller. It is held to being a function.
func (c *country) turn() {
	c.observe()
	was := c.snapshot()
	c.out = keys.Next(c.in, c.now)
	require.Equal(c.t, was, c.snapshot(), "Next changed what it was given")
	again := keys.Next(c.in, c.now)
	require.Equal(c.t, c.out.Conditions, again.Conditions, "Next does not always say the same")
	require.Len(c.t, again.Records, len(c.out.Records))
	c.in.Conditions, c.in.Resumed, c.looked = c.out.Conditions, false, c.now
	for _, config := range c.out.Configs {
		c.checkConfig(config)
	}
	for _, change := range c.out.Records {
		c.store(change)
	}
	for _, a := range c.out.Actions {
		switch a := a.(type) {
		case rotation.Migrate:
			for _, resource := range a.Resources {
				c.work[resource] = rotation.Progress{Goal: a.Goal, Resource: resource, Phase: rotation.Running}
			}
		case rotation.Canary:
			c.canary(a)
		case rotation.RunAudit:
			c.count()
		}
	}
}

// snapshot is what of the records could be changed behind their back.
func (c *country) snapshot() (all []string) {
	for _, r := range c.in.Records {
		text := fmt.Sprint(r.ID, r.Resources, r.Key, r.Change)
		if r.Plugin != nil {
			text += fmt.Sprint(string(r.Plugin.Settings), r.Plugin.Timeout, len(r.Plugin.Parts))
		}
		if r.State != nil {
			state, err := r.State.Encode()
			require.NoError(c.t, err)
			text += string(state)
		}
		all = append(all, text)
	}
	return all
}

// checkConfig holds a configuration to what all of them keep to.
func (c *country) checkConfig(config keys.Config) {
	var sets []string
	writers := map[bundle.KeyID]bool{}
	for _, e := range config.Entries {
		var ids []string
		for _, p := range e.Providers {
			if p.KeyID > 0 {
				ids = append(ids, p.KeyID.String())
			}
		}
		slices.Sort(ids)
		sets = append(sets, strings.Join(ids, ","))
		w := e.Providers[0]
		if w.KeyID > 0 {
			writers[w.KeyID] = true
		}
		require.False(c.t, w.KeyID == 0 && c.inUse && !c.plain, "O23: plain text is to be written, and nobody wanted that")
	}
	require.LessOrEqual(c.t, len(writers), 1, "I8: one key writes")
	require.Len(c.t, slices.Compact(sets), 1, "I8: all resources are read with the same keys")
	if c.bundles[config.Hash] {
		return
	}
	b, err := bundle.New(config.Draft(1, nil))
	require.NoError(c.t, err, "I23: a plugin for each, and none besides")
	require.Equal(c.t, config.Hash, hashed.Name(b.EncryptionConfig()))
	c.bundles[config.Hash] = true
}

func (c *country) store(change keys.RecordChange) {
	r := change.Record
	at := slices.IndexFunc(c.in.Records, func(other keys.Record) bool { return other.ID == r.ID })
	switch change.Verb {
	case keys.Create:
		require.Less(c.t, at, 0)
		require.Greater(c.t, r.ID, c.highest, "I5")
		for _, other := range c.in.Records {
			require.False(c.t, other.SettledAt.IsZero() && other.AbandonedAt.IsZero(), "I4: key %s overtakes %s", r.ID, other.ID)
		}
		c.highest = r.ID
		c.made++
	case keys.Delete:
		for _, objects := range c.stored {
			for _, under := range objects {
				require.NotContains(c.t, under[0], r.ID.String()+"_", "I25")
			}
		}
		c.in.Records = slices.Delete(slices.Clone(c.in.Records), at, at+1)
		return
	}
	if change.Reason == keys.Settled {
		c.inUse = c.inUse || r.Mode != keys.Identity
		for _, resource := range r.Resources {
			for _, under := range c.stored[resource] {
				require.True(c.t, r.Mode == keys.Identity && under[0] == rotation.Plain || strings.Contains(under[0], r.ID.String()+"_"), "I3: %s is in use alone, and something is under %s", r.ID, under[0])
			}
		}
	}
	s, err := keys.Encode(r, "kube-system")
	require.NoError(c.t, err)
	r, err = keys.Decode(s)
	require.NoError(c.t, err)
	all := slices.Clone(c.in.Records)
	if at < 0 {
		all = append(all, r)
	} else {
		all[at] = r
	}
	c.in.Records = all
}

func (c *country) deliver(name string) {
	if config, has := c.out.Configs[name]; has && c.servers[name] != nil {
		c.servers[name].file = config
		delete(c.out.Configs, name)
	}
}

func (c *country) canary(a rotation.Canary) {
	n := c.servers[a.Instance]
	if n == nil || !n.up || n.report.ConfigHash != n.effect.Hash {
		return
	}
	all := map[string]rotation.Instance{}
	for name, n := range c.servers {
		all[name] = n.report
	}
	s := rotation.Shown{At: c.now, Identities: rotation.Identities(all), KeyIDs: map[string]string{}, Etcds: []uint64{1}}
	for resource, objects := range c.stored {
		under := c.writes(n, resource)
		if !slices.Contains(a.Providers, under[0]) || !slices.Contains(c.under(), resource) {
			continue
		}
		for _, other := range c.servers {
			if !other.up || !other.reads(resource, under[0]) {
				return
			}
		}
		objects[0] = under
		s.KeyIDs[under[0]], s.Resources = under[1], append(s.Resources, resource)
	}
	n.shown = s
}

func (c *country) count() {
	c.audit = &rotation.Audit{StartedAt: c.now, Etcds: []rotation.Etcd{{Cluster: 1}}}
	for resource, objects := range c.stored {
		for _, under := range objects {
			plan := c.under()
			if under[0] == rotation.Plain && !slices.Contains(plan, resource) {
				continue // a count has no plain text of what the rotation is not of
			}
			c.audit.Counts = append(c.audit.Counts, rotation.Count{Resource: resource, Provider: under[0], KeyID: under[1], Objects: 1})
		}
	}
}

// under are the resources that what is under way is of.
func (c *country) under() []string {
	for _, r := range slices.Backward(c.in.Records) {
		if r.State != nil && r.AbandonedAt.IsZero() {
			return r.State.Plan.Resources
		}
	}
	return nil
}

func (c *country) migrate(resource string) {
	p := c.work[resource]
	if p.Phase != rotation.Running {
		return
	}
	for i := range c.stored[resource] {
		n := c.node()
		if !n.up || !n.reads(resource, c.stored[resource][i][0]) {
			p.Phase, p.EndedAt, p.Problem = rotation.Failed, c.now, "connection refused"
			c.work[resource] = p
			return
		}
		c.stored[resource][i] = c.writes(n, resource)
	}
	p.Phase, p.EndedAt = rotation.Succeeded, c.now
	c.work[resource] = p
}

func (c *country) tries() {
	c.in.Verdicts = map[string]keys.Verdict{}
	if p := c.out.Preflight; p != nil {
		for _, name := range c.names() {
			c.in.Verdicts[name] = keys.Verdict{Hash: p.Hash, Outcome: rapid.SampledFrom([]keys.Outcome{keys.Passed, keys.Passed, keys.Passed, keys.NotYet}).Draw(c.t, "outcome"),
				KeyIDHash: hashed.ID(p.KeyID.String() + " 0")}
		}
	}
}

func (c *country) wish() {
	mode := rapid.SampledFrom(kinds).Draw(c.t, "mode")
	d := wants(mode, nil, rapid.SampledFrom(resources).Draw(c.t, "resources")...)
	if mode == keys.KMS {
		d.Plugin = keyFile(rapid.SampledFrom([]string{"A", "B"}).Draw(c.t, "file"))
	}
	d.Strict = rapid.Bool().Draw(c.t, "strict")
	c.plain = c.plain || mode == keys.Identity || len(d.Resources) < 2
	c.in.Desired = d
}

func (c *country) start(n *node) {
	if !n.up && n.file.Hash != "" {
		n.up, n.effect = true, n.file
		n.learn(c)
	}
}

func (n *node) learn(c *country) { n.told = maps.Clone(c.versions) }

// check is what it is all for.
func (c *country) check() {
	for name, n := range c.servers {
		for resource, objects := range c.stored {
			for _, under := range objects {
				require.True(c.t, !n.up || n.effect.Hash == "" || n.reads(resource, under[0]), "I1, I3: %s cannot read what %s are under, %s", name, resource, under[0])
			}
		}
	}
}

func (c *country) actions() map[string]func(*rapid.T) {
	one := func(do func(*node)) func(*rapid.T) { return func(*rapid.T) { do(c.node()) } }
	name := func() string { return rapid.SampledFrom(c.names()).Draw(c.t, "name") }
	resource := func() string { return rapid.SampledFrom(resources[1]).Draw(c.t, "resource") }
	return map[string]func(*rapid.T){
		"turn":    func(*rapid.T) { c.turn() },
		"deliver": func(*rapid.T) { c.deliver(name()) },
		"reload": one(func(n *node) {
			if n.up && n.file.Hash != "" {
				n.effect = n.file
			}
		}),
		"kill":  one(func(n *node) { n.up = false }),
		"start": one(c.start),
		"look":  func(*rapid.T) { c.look(name()) },
		"write": one(func(n *node) {
			if r := resource(); n.up {
				c.stored[r][1] = c.writes(n, r)
			}
		}),
		"learn": one(func(n *node) { n.learn(c) }),
		"rotate": func(*rapid.T) {
			if c.highest > 0 {
				c.versions[c.highest]++
			}
		},
		"try":     func(*rapid.T) { c.tries() },
		"wish":    func(*rapid.T) { c.wish() },
		"migrate": func(*rapid.T) { c.migrate(resource()) },
		"count":   func(*rapid.T) { c.count() },
		"pass": func(*rapid.T) {
			c.now = c.now.Add(time.Duration(rapid.IntRange(1, 300).Draw(c.t, "seconds")) * time.Second)
		},
		"crash":    func(*rapid.T) { c.work, c.audit, c.in.Resumed = map[string]rotation.Progress{}, nil, true },
		"lose":     one(func(n *node) { n.file = keys.Config{} }),
		"all well": func(*rapid.T) { c.round() },
		"replace": func(*rapid.T) {
			if gone := name(); len(c.servers) > 1 || rapid.Bool().Draw(c.t, "rename") {
				delete(c.servers, gone)
				c.servers[rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(c.t, "new")] = &node{told: maps.Clone(c.versions)}
			}
		},
		"": func(*rapid.T) { c.check() },
	}
}

// round is one in which nothing goes wrong.
func (c *country) round() {
	for _, name := range c.names() {
		n := c.servers[name]
		c.start(n)
		if n.up && n.file.Hash != "" {
			n.effect = n.file
		}
		n.learn(c)
		c.look(name)
	}
	c.turn()
	c.tries()
	for _, name := range c.names() {
		c.deliver(name)
	}
	for _, resource := range resources[1] {
		c.migrate(resource)
	}
	c.now = c.now.Add(time.Minute)
}

// ends reports whether all is as it is wanted, and nothing is under way.
func (c *country) ends() bool {
	d := c.in.Desired
	want := []string{v1alpha1.ReasonEncryptionCompleted}
	if d.Mode == keys.Identity {
		want = []string{v1alpha1.ReasonEncryptionDisabled, v1alpha1.ReasonDecryptionCompleted}
	}
	if !slices.Contains(want, c.out.Conditions[0].Reason) || len(c.out.Records) > 0 {
		return false
	}
	for resource, objects := range c.stored {
		for _, under := range objects {
			if (d.Mode != keys.Identity && slices.Contains(d.Resources, resource)) != (under[0] != rotation.Plain) {
				return false
			}
		}
	}
	return true
}

func TestWhateverHappensAllIsReadableAndComesToItsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCountry(t)
		c.round()
		c.round()
		t.Repeat(c.actions())
		ends := false
		for range 150 {
			c.round()
			c.check()
			if ends = c.ends(); ends {
				break
			}
		}
		require.True(t, ends, "%v %v: %v %v", c.in.Desired.Mode, c.in.Desired.Resources, c.out.Conditions, c.stored)
		require.LessOrEqual(t, c.made, 40)
	})
}
