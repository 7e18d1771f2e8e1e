package keys

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// Desired is what is wanted. It holds credentials.
type Desired struct {
	redact.As
	Mode      Mode
	Resources []string
	// Plugin is of KMS: its settings, and what the Secrets and ConfigMaps have that they name
	// by now.
	Plugin *Plugin
	// Strict is that plain text is not read any more once there is none.
	Strict bool
	// External is why people want another key of a local mode, in any words that they did
	// not give before. Renew is how old one may become; 0 is any age.
	External string
	Renew    time.Duration
	// Retry is any text; another one has a preflight begin anew.
	Retry string
}

func (d *Desired) validate() error {
	switch {
	case d.Mode != Identity && d.Mode != KMS && !d.Mode.local():
		return fmt.Errorf("mode %.40q is not known: it is identity, aescbc, aesgcm, secretbox or KMS", d.Mode)
	case (d.Mode == KMS) != (d.Plugin != nil):
		return errors.New("settings of a plugin belong to KMS, and to no other mode")
	}
	return resourcesOf(d.resources())
}

func (d *Desired) resources() []string {
	return slices.Compact(slices.Sorted(slices.Values(d.Resources)))
}

// hash names what a preflight is of: the settings, what is in the files, the timeout, and
// the key that it is to be compared with. It is keyed, so that who sees it cannot try which
// credential it is of, and each field has its length before it, so that none runs into
// the next.
func (d *Desired) hash(secret []byte, beside bundle.KeyID) string {
	mac := hmac.New(sha256.New, secret)
	add := func(content []byte) {
		_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(content)))) // which never fails
		_, _ = mac.Write(content)
	}
	for _, text := range []string{d.Retry, beside.String(), d.Plugin.timeout().String(), string(d.Plugin.Settings)} {
		add([]byte(text))
	}
	for _, part := range sortedParts(d.Plugin.Parts) {
		for _, text := range []string{string(part.Source), part.Name, part.Key} {
			add([]byte(text))
		}
		add(d.Plugin.Parts[part])
	}
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
}

// MinSecret is the least length of what hashes of preflights are keyed with, in bytes.
const MinSecret = 16

func sortedParts(parts map[bundle.Part][]byte) []bundle.Part {
	return slices.SortedFunc(maps.Keys(parts), func(a, b bundle.Part) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
}

// Outcome is how a preflight ended on a node; the words are those of a trial there.
type Outcome string

// The outcomes. What has NotYet passed is tried again as it is.
const (
	Passed  Outcome = "passed"
	Refused Outcome = "refused"
	NotYet  Outcome = "not yet"
)

// Verdict is what a preflight found on one node.
type Verdict struct {
	// Hash is that of the [Preflight] which it is of. It says nothing of any other.
	Hash    string
	Outcome Outcome
	// KeyIDHash names the key_id that the plugin told.
	KeyIDHash string
	// Evidence is what was seen of it beside the plugin in use.
	Evidence bundle.Evidence
	// Problem is why it has not passed, in one line without credentials.
	Problem string
}

// Preflight asks every node to try a plugin before there is a key of it.
type Preflight struct {
	redact.As
	Hash string
	// KeyID is the one that it would have: its socket is to be free.
	KeyID  bundle.KeyID
	Plugin *Plugin
	// Beside is the key whose plugin it is compared with, 0 for none.
	Beside bundle.KeyID
}

// need is what a wish needs of the key that there is.
type need struct {
	effect bundle.Effect
	reason Reason
	why    string
}

// of compares a key with what is wanted, by what was seen on all nodes and not by names
// alone.
func (d *Desired) of(r *Record, seen []bundle.Evidence, now time.Time) (need, error) {
	switch {
	case r.Mode != d.Mode:
		return need{bundle.AnotherKeyID, ModeChanged, fmt.Sprintf("%s is wanted, and it is of %s", d.Mode, r.Mode)}, nil
	case d.Mode == KMS:
		return d.ofPlugin(r, seen)
	case !d.Mode.local():
	case d.External != "" && d.External != r.External:
		return need{bundle.AnotherKeyID, Requested, "another one is wanted: " + d.External}, nil
	case d.Renew > 0 && r.settled() && now.Sub(r.SettledAt) >= d.Renew:
		return need{bundle.AnotherKeyID, Aged, "it is older than " + d.Renew.String()}, nil
	}
	return need{effect: bundle.NoChange}, nil
}

var effects = []bundle.Effect{bundle.NoChange, bundle.InPlace, bundle.Undecided, bundle.AnotherKeyID}

// ofPlugin is the most that any node needs.
func (d *Desired) ofPlugin(r *Record, seen []bundle.Evidence) (need, error) {
	if d.Plugin.equal(r.Plugin) && !slices.ContainsFunc(seen, func(e bundle.Evidence) bool { return e.Opened == bundle.No || e.OpenedBack == bundle.No }) {
		return need{effect: bundle.NoChange}, nil
	}
	from, err := r.Plugin.at(r.ID)
	if err != nil {
		return need{}, err
	}
	to, err := d.Plugin.at(r.ID)
	if err != nil {
		return need{}, err
	}
	n := need{effect: bundle.NoChange}
	if len(seen) == 0 {
		seen = []bundle.Evidence{{}}
	}
	for _, e := range seen {
		c := bundle.Compare(from, to, e)
		if slices.Index(effects, c.Effect) <= slices.Index(effects, n.effect) {
			continue
		}
		n = need{c.Effect, PluginChanged, c.Why}
		if from.Settings().Backend() != to.Settings().Backend() {
			n.reason = ProviderChanged
		}
	}
	return n, nil
}
