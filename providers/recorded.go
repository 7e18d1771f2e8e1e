package providers

import (
	"sync"
	"time"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/metrics"
)

// recorded is what the metrics have of the plugin on one socket. It is one for all
// who use that, as their counts are, so that whoever records takes what came since
// once, and a name that is new to the metrics gets what they had under the former.
// Safe for concurrent use.
type recorded struct {
	mu      sync.Mutex
	uses    map[string]recordedUse // by key_id
	usesV1  envelope.Use
	named   string // the key_id that Status named last
	namedAt time.Time
}

// recordedUse is what was recorded under one key_id, and when it was last used.
type recordedUse struct {
	envelope.Use
	wroteAt, readAt time.Time
}

// use records what was read and written since it was last called.
func (r *recorded) use(kms metrics.KMS, usage func() map[string]envelope.Use, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	uses := map[string]recordedUse{}
	for keyID, use := range usage() {
		last := r.uses[keyID]
		since := use.Since(last.Use)
		kms.KeyIDUsed(metrics.ToStorage, keyID, since.Writes)
		kms.KeyIDUsed(metrics.FromStorage, keyID, since.Reads)
		last.Use = use
		if since.Writes > 0 {
			last.wroteAt = now
		}
		if since.Reads > 0 {
			last.readAt = now
		}
		uses[keyID] = last
	}
	r.uses = uses
}

// useV1 is the same for KMS v1, which has no key_ids.
func (r *recorded) useV1(kms metrics.KMSv1, usage func() envelope.Use) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := usage()
	since := now.Since(r.usesV1)
	if since.Writes > 0 {
		kms.Arrived(metrics.ToStorage)
	}
	if since.Reads > 0 {
		kms.Arrived(metrics.FromStorage)
	}
	r.usesV1 = now
}

// status notes which key_id Status named.
func (r *recorded) status(keyID string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.named, r.namedAt = keyID, now
}

// statusAgain records under a new name which key_id Status named last, and when.
func (r *recorded) statusAgain(kms metrics.KMS) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.namedAt.IsZero() {
		kms.StatusKeyIDAt(r.named, r.namedAt)
	}
}

// useAgain is the same for when each key_id was last used.
func (r *recorded) useAgain(kms metrics.KMS) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for keyID, use := range r.uses {
		if !use.wroteAt.IsZero() {
			kms.KeyIDUsedAt(metrics.ToStorage, keyID, use.wroteAt)
		}
		if !use.readAt.IsZero() {
			kms.KeyIDUsedAt(metrics.FromStorage, keyID, use.readAt)
		}
	}
}
