package providers

import (
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/transformer"
)

// localUse counts what was read with a key of the file, or as plaintext.
type localUse struct {
	config.Means
	reads *transformer.Reads
	// Of the one who tends the transformers.
	told     uint64
	lastRead time.Time
}

// localUse is the counter of reads with m, which goes on from the file before.
func (b builder) localUse(m config.Means) *transformer.Reads {
	t := b.Transformers
	for _, from := range append([]*Transformers{t}, b.before...) {
		i := slices.IndexFunc(from.locals, func(u *localUse) bool { return u.Equal(m) })
		if i < 0 {
			continue
		}
		if from != t {
			t.locals = append(t.locals, from.locals[i])
		}
		return from.locals[i].reads
	}
	u := &localUse{Means: m, reads: &transformer.Reads{}}
	t.locals = append(t.locals, u)
	return u.reads
}

// tend notes when something was last read.
func (u *localUse) tend(now time.Time) {
	if n := u.reads.Load(); n != u.told {
		u.told, u.lastRead = n, now
	}
}

// Removal is something that was read with by one file and is not in the next.
type Removal struct {
	// Name is that of a key or a KMS provider, or identity.
	Name string
	// Reads is how often this process read with it, and LastRead when it last
	// did, to some seconds.
	Reads    uint64
	LastRead time.Time
}

// Removed lists what t was read with and next is not. Of a plugin that had several
// names the reads are those under all. Whether anything in etcd still needs it
// cannot be told from here.
func (t *Transformers) Removed(next *Transformers, c clock.PassiveClock) []Removal {
	var all []Removal
	for _, u := range t.locals {
		u.tend(c.Now())
		if u.told > 0 && !slices.Contains(next.locals, u) {
			all = append(all, Removal{Name: u.Name, Reads: u.told, LastRead: u.lastRead})
		}
	}
	for _, u := range t.plugins {
		u.count()
		if !u.counts {
			continue // it is told of with the first on its socket
		}
		gone := t.namesNotIn(next.configuration, u.id)
		if h := u.source.Health(); h.Reads > 0 && len(gone) > 0 {
			all = append(all, Removal{Name: "kms " + strings.Join(gone, ", "), Reads: h.Reads, LastRead: h.LastRead})
		}
	}
	return all
}

// namesNotIn are the names of all on the socket of a plugin under which another
// file reads nothing from it.
func (t *Transformers) namesNotIn(c *config.Configuration, id pluginID) []string {
	var gone []string
	for _, u := range t.plugins {
		if !u.id.sameSocket(id) {
			continue
		}
		for _, p := range u.providers {
			if !slices.ContainsFunc(c.Providers(), func(o *config.Provider) bool { return o.Means()[0].Equal(p.Means()[0]) }) {
				gone = append(gone, p.KMS().Name)
			}
		}
	}
	return gone
}
