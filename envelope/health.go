package envelope

import (
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
)

// Health is what a provider knows of itself. It is a record of what was seen:
// making one calls nobody.
type Health struct {
	// Writes reports whether the provider has to write, and so needs the
	// plugin's Status, Encrypt and Decrypt. One that only reads needs Decrypt, and
	// that only for a DEK it has not met.
	Writes bool
	// Problem is what is wrong, or empty; Err is its text and cause, and Since
	// when it was first seen. For a healthy provider Since is when it became so.
	//
	// The calls count in the order Status, Encrypt, Decrypt; Encrypt only for a
	// provider that writes. A plugin that was well and is out of reach for less
	// than two seconds has no problem yet. Decrypt's problem is one with what the
	// plugin should be able to unwrap: the write DEK, or where nothing is written
	// one that was read before. That is tried at once when a value's DEK is not
	// unwrapped, and at each poll while it fails; that one value fails is no
	// problem of the plugin. For a provider that only reads neither is a Status
	// that is refused, while Decrypt succeeds.
	Problem Problem
	Err     error
	Since   time.Time
	// LastHealthy is when the plugin was last asked and found well; zero if
	// never. For a provider that only reads it is about Status alone.
	LastHealthy time.Time
	// WritesUntil is when writing stops unless the plugin is found healthy again;
	// zero when nothing can be written.
	WritesUntil time.Time
	// KeyIDHash is [HashKeyID] of the key_id under which values are written, and
	// while there is none, or for a provider that only reads, of the one that
	// Status named last.
	KeyIDHash string
	// DEKCreated is when the write DEK was made, and DEKWrites how many values
	// it has sealed.
	DEKCreated time.Time
	DEKWrites  uint64
	// DEKHash is sha256:<hex> of how the write DEK is stored, sealed and with its
	// key_id, at the end of every object that is written with it.
	DEKHash string
	// CachedDEKs is how many unwrapped DEKs are held for reading.
	CachedDEKs int
	// Reads is how many values were opened since the provider was made, and
	// LastRead when the last was; LastWrite is when the last was sealed. All are as of
	// the last call of [Provider.Usage].
	Reads     uint64
	LastRead  time.Time
	LastWrite time.Time
}

// Health is what the provider knows of itself now.
func (p *Provider) Health() Health {
	k, c, role := p.followed.Load(), p.followed.Condition(), p.followed.Role()
	h := Health{
		Writes: role == Writes, Since: c.Since, LastHealthy: k.Status.WellAt, KeyIDHash: HashKeyID(k.KeyID),
		CachedDEKs: p.cache.len(),
	}
	if c.Trouble != nil {
		h.Problem, h.Err = c.Problem, c.Err
	}
	if role == Writes {
		p.writer.into(&h)
	}
	used, last := p.usage.latest(p.opts.Clock.Now())
	h.Reads, h.LastRead, h.LastWrite = used.Reads, last.read, last.write
	return h
}

// HashKeyID is how a key_id is shown: sha256:<hex>, as in kube-apiserver's
// metrics. A key_id is chosen by the plugin, and may be anything.
func HashKeyID(keyID string) string { return hashed.ID(keyID) }
