package envelope

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// Health is what a provider knows of itself. It is a record of what was seen:
// making one calls nobody.
type Health struct {
	// Writes tells whether the provider has to write, and so needs the
	// plugin's Status and Encrypt. One that only reads needs Decrypt, and that
	// only for a DEK it has not met.
	Writes bool
	// Problem is what is wrong, or empty; Err is its text and cause, and Since
	// when it was first seen. For a healthy provider Since is when it became so.
	//
	// Of a provider that only reads it is what the last Decrypt came to, and if
	// that was well, what Status did. A Status that is well ends a problem of
	// Decrypt only if that did not reach the plugin, and a Status that is refused
	// is no problem once Decrypt has succeeded since.
	Problem Problem
	Err     error
	Since   time.Time
	// LastHealthy is when Status was last found healthy; zero if never.
	LastHealthy time.Time
	// WritesUntil is when writing stops unless Status is found healthy again;
	// zero when nothing can be written.
	WritesUntil time.Time
	// KeyIDHash is [HashKeyID] of the key_id under which values are written, and
	// for a provider that only reads, of the one that Status named last.
	KeyIDHash string
	// DEKCreated is when the write DEK was made, and DEKWrites how many values
	// it has sealed.
	DEKCreated time.Time
	DEKWrites  uint64
	// CachedDEKs is how many unwrapped DEKs are held for reading.
	CachedDEKs int
	// Reads is how many values were opened since the provider was made, and
	// LastRead when the last was, both as of the last call of [Provider.Usage].
	Reads    uint64
	LastRead time.Time
}

// Ready tells whether the provider can do all that it is there for.
func (h *Health) Ready() bool { return h.Problem == "" || !h.Writes }

// HashKeyID is how a key_id is shown: sha256:<hex>, as in kube-apiserver's
// metrics. A key_id is chosen by the plugin, and may be anything.
func HashKeyID(keyID string) string {
	if keyID == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(keyID))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// setCondition fills in what a condition tells.
func (h *Health) setCondition(c *plugin.Condition) {
	h.Since = c.Since
	if c.Trouble != nil {
		h.Problem, h.Err = c.Problem, c.Err
	}
}
