package overview

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// Overview is how a fleet is. What was not told is absent.
type Overview struct {
	// At is when the look ended.
	At      time.Time `json:"at"`
	Verdict Verdict   `json:"verdict"`
	// Summary is the verdict in one line.
	Summary    string      `json:"summary"`
	Apiservers []Apiserver `json:"apiservers"`
	Problems   []Problem   `json:"problems"`
	// Notes are what is good to know and changes no verdict.
	Notes []string `json:"notes"`
	Etcd  *Etcd    `json:"etcd,omitempty"`
}

// Apiserver is one of the fleet, as it told of itself.
type Apiserver struct {
	Name string `json:"name"`
	// AnsweredAt is when it told this, and Seen reports whether that was in this look.
	AnsweredAt time.Time `json:"answeredAt,omitzero"`
	Seen       bool      `json:"seen"`
	// ConfigHash is that of the configuration in effect, and ConfigSince since when it
	// is.
	ConfigHash  string    `json:"configHash,omitempty"`
	ConfigSince time.Time `json:"configSince,omitzero"`
	// Providers are its KMS providers, those that are written with first, and then by
	// name.
	Providers []Provider `json:"providers"`
}

// Health is how an apiserver finds the plugin of a provider.
type Health string

// What a plugin can be, beside what a [Verdict] says: Silent is one that an apiserver
// which does not tell its providers has heard nothing of for minutes and does not
// complain of, so that it is probably in its configuration no longer.
const Silent Health = "silent"

// Provider is a KMS provider of an apiserver.
type Provider struct {
	Name string        `json:"name"`
	Role rotation.Role `json:"role,omitempty"`
	// KeyIDHash is that of the key_id that its plugin named last, and WroteKeyIDHash
	// that of the one that was last written under, if something was.
	KeyIDHash      string `json:"keyIDHash,omitempty"`
	WroteKeyIDHash string `json:"wroteKeyIDHash,omitempty"`
	// Health is well, "not well", silent or unknown; Problem is what is wrong.
	Health  Health `json:"health"`
	Problem string `json:"problem,omitempty"`
	// WritesLeft is for how many seconds writes go on if the plugin is not found well
	// again.
	WritesLeft *float64  `json:"writesLeftSeconds,omitempty"`
	LastWrite  time.Time `json:"lastWrite,omitzero"`
	// DEKs is how many are in memory.
	DEKs *int `json:"deks,omitempty"`
}

// Of says how a fleet is.
func Of(s Seen) Overview {
	o := Overview{At: s.Ended, Apiservers: []Apiserver{}, Problems: []Problem{}, Notes: []string{}, Etcd: s.Etcd}
	for _, name := range s.Apiservers {
		o.Apiservers = append(o.Apiservers, s.row(name))
	}
	j := judge{seen: s, usable: map[string]rotation.Instance{}}
	j.all()
	o.Problems, o.Notes = append(o.Problems, j.problems...), append(o.Notes, j.notes...)
	o.Verdict, o.Summary = verdict(o.Problems), summary(s, o.Problems)
	return o
}

func (s Seen) row(name string) Apiserver {
	i := s.Told[name]
	a := Apiserver{Name: name, AnsweredAt: i.CheckedAt, Seen: s.fresh(i), ConfigHash: i.ConfigHash, ConfigSince: i.ConfigSince, Providers: []Provider{}}
	for _, provider := range slices.Sorted(maps.Keys(i.Providers)) {
		a.Providers = append(a.Providers, s.provider(provider, i.Providers[provider], a.Seen))
	}
	slices.SortStableFunc(a.Providers, func(a, b Provider) int { return cmp.Compare(rank(a), rank(b)) })
	return a
}

func rank(p Provider) int {
	return slices.Index([]rotation.Role{rotation.RoleWrites, "", rotation.RoleReads}, p.Role)
}

func (s Seen) provider(name string, told rotation.Provider, seen bool) Provider {
	p := Provider{Name: name, Role: told.Told.Role, KeyIDHash: told.KeyID, WroteKeyIDHash: told.WroteKeyID,
		Health: Health(Unknown), Problem: told.Problem, LastWrite: told.Told.LastWrite, DEKs: told.Told.DEKs}
	switch {
	case !seen:
		return p
	case told.Silent:
		p.Health = Silent
	case told.Healthy && told.KeyID != "":
		p.Health = Health(Well)
	case !told.Healthy:
		p.Health = Health(NotWell)
	}
	if told.Told.Role == rotation.RoleWrites {
		left := s.left(told)
		p.WritesLeft = &left
	}
	return p
}

// left is for how many seconds a provider is written with, if it is not found well
// again.
func (s Seen) left(p rotation.Provider) float64 {
	if p.Told.WritesUntil.IsZero() {
		return 0
	}
	return max(0, p.Told.WritesUntil.Sub(s.Ended).Seconds())
}
