package keys_test

import (
	"bytes"
	"fmt"
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/keys"
	"github.com/kube-atrest/atrest/operate/rotation"
)

var start = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

const wrapper = "apiVersion: " + bundle.APIVersion + "\nkind: " + bundle.SettingsKind + "\n"

// The credentials of tests: no text may hold them.
const (
	roleID   = "7d3c1f0e-role-sesame"
	secretID = "51c0ffee-secret-sesame"
)

var (
	secret = bytes.Repeat([]byte{7}, keys.MinSecret)
	random = bytes.Repeat([]byte{9}, keys.KeySize)
)

// keyFile is a plugin with a file of that name, whose KEK is known by it.
func keyFile(name string) *keys.Plugin {
	return &keys.Plugin{Settings: []byte(wrapper + "keyFile: {path: /etc/" + name + "}\n")}
}

// vault is a plugin with a key in a Vault, and a role of that Secret.
func vault(key, role string) *keys.Plugin {
	return &keys.Plugin{
		Settings: []byte(wrapper + "vault: {address: \"https://vault.example.com:8200\", keyPath: " + key + ", auth: {appRole: {secret: " + role + "}}}\n"),
		Parts: map[bundle.Part][]byte{
			{Source: bundle.Secret, Name: role, Key: "role-id"}:   []byte(roleID),
			{Source: bundle.Secret, Name: role, Key: "secret-id"}: []byte(secretID),
		},
	}
}

func wants(mode keys.Mode, p *keys.Plugin, resources ...string) keys.Desired {
	if resources == nil {
		resources = []string{"secrets"}
	}
	return keys.Desired{Mode: mode, Plugin: p, Resources: resources}
}

// cluster is a small world in which all that is asked for happens at once, and well. KEKs
// are told apart by the key_ids that a test gives their plugins.
type cluster struct {
	now     time.Time
	in      keys.Input
	out     keys.Output
	servers map[string]*served
	// keyIDs are of the plugins, by keyID; of those in no configuration yet the one that is
	// wanted has wanted.
	keyIDs map[bundle.KeyID]string
	wanted string
	// stored is what is stored of each resource: provider and the hash of a key_id.
	stored map[string][2]string
	log    []string
	audit  *rotation.Audit
	work   []rotation.Progress
	// evidence is what nodes see of what is wanted beside what is in use.
	evidence bundle.Evidence
	refuses  string
	// versions are of the KEKs that single apiservers see.
	versions map[string]string
}

// served is an apiserver with the configuration that is in effect there.
type served struct {
	has  keys.Config
	down bool
}

func newCluster(names ...string) *cluster {
	c := &cluster{now: start, servers: map[string]*served{}, keyIDs: map[bundle.KeyID]string{}, stored: map[string][2]string{}, wanted: "kek"}
	for _, name := range names {
		c.servers[name] = &served{}
	}
	c.in.Secret, c.in.Random, c.in.Expected = secret, random, names
	c.in.Times = keys.Times{Hold: time.Minute, MaxAge: 2 * time.Minute, RetryAfter: time.Minute}
	return c
}

func (c *cluster) keyID(p keys.Provider) string {
	if p.Mode != keys.KMS {
		return ""
	}
	if c.keyIDs[p.KeyID] == "" {
		c.keyIDs[p.KeyID] = c.wanted
	}
	return hashed.ID(c.keyIDs[p.KeyID])
}

// writes is what an apiserver writes a resource with.
func (s *served) writes(resource string) keys.Provider {
	for _, e := range s.has.Entries {
		if e.Resource == resource {
			return e.Providers[0]
		}
	}
	return keys.Provider{Name: rotation.Plain, Mode: keys.Identity}
}

func (c *cluster) look() {
	o := rotation.Observation{Instances: map[string]rotation.Instance{}, Shown: map[string]rotation.Shown{}, Audit: c.audit, Migrations: c.work}
	c.in.Present = nil
	for name, s := range c.servers {
		i := rotation.Instance{CheckedAt: c.now, ConfigHash: s.has.Hash, FileHash: s.has.Hash, Complete: true, Providers: map[string]rotation.Provider{}}
		for _, e := range s.has.Entries {
			for n, p := range e.Providers {
				if p.KeyID > 0 {
					c.in.Present = append(c.in.Present, p.KeyID)
				}
				if p.Mode == keys.KMS {
					told := rotation.Provider{Healthy: true, KeyID: c.keyID(p)}
					if version := c.versions[name]; version != "" {
						told.KeyID = hashed.ID(version)
					}
					if n == 0 {
						told.WroteKeyID, told.WroteAt = told.KeyID, c.now
					}
					i.Providers[p.Name] = told
				}
			}
		}
		o.Instances[name] = i
	}
	for name, s := range c.servers {
		shown := rotation.Shown{At: c.now, Identities: rotation.Identities(o.Instances), KeyIDs: map[string]string{}, Etcds: []uint64{1}}
		for resource := range c.stored {
			p := s.writes(resource)
			shown.KeyIDs[p.Name], shown.Resources = c.keyID(p), append(shown.Resources, resource)
		}
		if s.down {
			delete(o.Instances, name)
			continue
		}
		o.Shown[name] = shown
	}
	c.in.Observed = o
}

func (c *cluster) tries() {
	c.in.Verdicts = map[string]keys.Verdict{}
	if p := c.out.Preflight; p != nil {
		for _, name := range c.in.Expected {
			v := keys.Verdict{Hash: p.Hash, Outcome: keys.Passed, KeyIDHash: hashed.ID(c.wanted), Evidence: c.evidence}
			if c.refuses != "" {
				v.Outcome, v.Problem = keys.Refused, c.refuses
			}
			c.in.Verdicts[name] = v
		}
	}
}

// store carries out the changes of records, through their Secrets.
func (c *cluster) store() {
	for _, change := range c.out.Records {
		c.log = append(c.log, fmt.Sprintf("%s %s %s", change.Verb, change.Record.ID, change.Reason))
		all := []keys.Record{}
		for _, r := range c.in.Records {
			if r.ID != change.Record.ID {
				all = append(all, r)
			}
		}
		if change.Verb != keys.Delete {
			s, err := keys.Encode(change.Record, "kube-system")
			if err != nil {
				panic(err)
			}
			r, err := keys.Decode(s)
			if err != nil {
				panic(err)
			}
			all = append(all, r)
		}
		c.in.Records = all
	}
}

// step is one turn of a controller, and all that comes of it.
func (c *cluster) step() {
	c.now = c.now.Add(30 * time.Second)
	c.look()
	c.out = keys.Next(c.in, c.now)
	c.in.Conditions, c.in.Resumed = c.out.Conditions, false
	c.store()
	c.tries()
	for name, config := range c.out.Configs {
		if s := c.servers[name]; s != nil && !s.down && s.has.Hash != config.Hash {
			s.has = config
			line := name + ":"
			for _, e := range config.Entries {
				for _, p := range e.Providers {
					line += " " + p.Name
				}
			}
			c.log = append(c.log, line)
		}
	}
	for _, a := range c.out.Actions {
		switch a := a.(type) {
		case rotation.Migrate:
			c.work = nil
			for _, resource := range a.Resources {
				for name, s := range c.servers {
					if p := s.writes(resource); !s.down && name != "" {
						c.stored[resource] = [2]string{p.Name, c.keyID(p)}
						break
					}
				}
				c.work = append(c.work, rotation.Progress{Goal: a.Goal, Resource: resource, Phase: rotation.Succeeded, EndedAt: c.now})
			}
			c.log = append(c.log, "migrate")
		case rotation.RunAudit:
			c.audit = &rotation.Audit{StartedAt: c.now, Etcds: []rotation.Etcd{{Cluster: 1, Revision: 1}}}
			for resource, form := range c.stored {
				c.audit.Counts = append(c.audit.Counts, rotation.Count{Resource: resource, Provider: form[0], KeyID: form[1], Objects: 1})
			}
		}
	}
}

// settle goes on until nothing is under way.
func (c *cluster) settle(d keys.Desired) {
	c.in.Desired = d
	for _, resource := range d.Resources {
		if _, there := c.stored[resource]; !there {
			c.stored[resource] = [2]string{rotation.Plain, ""}
		}
	}
	for range 60 {
		c.step()
	}
}

func (c *cluster) condition(what string) keys.Condition {
	for _, condition := range c.out.Conditions {
		if condition.Type == what {
			return condition
		}
	}
	return keys.Condition{}
}
