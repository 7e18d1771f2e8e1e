package rotation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// version is that of the form in which a [State] is stored.
const version = 1

// MaxSize is how many bytes [Decode] reads at most.
const MaxSize = 4 << 20

// What a [Plan] has where it says nothing else.
const (
	// DefaultHold is longer than an apiserver's requests last, so that no write
	// begun before is still under way after it.
	DefaultHold = Duration(5 * time.Minute)
	// DefaultMaxAge is four times the 30 seconds between two reports.
	DefaultMaxAge     = Duration(2 * time.Minute)
	DefaultRetryAfter = Duration(5 * time.Minute)
)

// State is a rotation: what was planned, and how far it is. It holds no key
// material. A State is a value; [Next] leaves the one it is given as it was.
type State struct {
	Version int  `json:"version"`
	Plan    Plan `json:"plan"`
	// Exactly one of the two is set.
	Move      *Move      `json:"move,omitempty"`
	OnePlugin *OnePlugin `json:"onePlugin,omitempty"`
	// Round is that of the latest migration.
	Round int `json:"round"`
	// Migration is the one that is under way; nil between two.
	Migration *Migration `json:"migration,omitempty"`
	// AuditAfter is from when on an audit counts: when the latest migration was
	// seen to have ended, or when a write may have ended that an apiserver began
	// while it was not known to be well.
	AuditAfter time.Time `json:"auditAfter,omitzero"`
	// Told are the hashes of the key_ids that the providers of all apiservers told of when
	// they were looked at last.
	Told []string `json:"told,omitempty"`
	// Etcds are the ids of the etcd clusters in which something was found first that
	// the apiservers wrote: those that the rotation is of.
	Etcds []uint64 `json:"etcds,omitempty"`
	// Cluster is the UID of the namespace kube-system that the apiservers tell, as etcd
	// clusters may have one id. It is empty if they tell none, or if the rotation began
	// with a program that did not ask. It is for who stores the state.
	Cluster string `json:"cluster,omitempty"`
	// Restarting is the instance whose start was asked for last, until it is back.
	Restarting *restarting `json:"restarting,omitempty"`
}

// Plan is what both kinds of rotation have to be told.
type Plan struct {
	// Configs has, for every apiserver there is, the hashes of its configuration
	// file: for [OnePlugin] the one in effect, for [Move] one for each
	// stage in the order of [Stages]. Apiservers with equal files have equal
	// hashes.
	Configs map[string][]string `json:"configs"`
	// Resources are those whose objects are rewritten and counted, such as
	// secrets or deployments.apps.
	Resources []string `json:"resources"`
	// Hold is for how long all apiservers have to agree, without a break, before
	// anything is rewritten.
	Hold Duration `json:"hold"`
	// MaxAge is how old the answer of an apiserver may be; RetryAfter is how
	// long after a failed or incomplete migration the next one begins.
	MaxAge     Duration `json:"maxAge"`
	RetryAfter Duration `json:"retryAfter"`
	// First is the instance that a new stage goes to before the others; without it, the
	// first by name.
	First string `json:"first,omitempty"`
	// Restarts is that an instance which does not follow its file can be started anew.
	Restarts bool `json:"restarts,omitempty"`
}

// Duration is a time.Duration whose JSON is text, as in 5m0s.
type Duration time.Duration

// MarshalText is [time.Duration.String].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText is [time.ParseDuration].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Encode is the JSON of a State, for a file.
func (s State) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("rotation state cannot be encoded: %w", err)
	}
	return append(data, '\n'), nil
}

// Decode reads what [State.Encode] wrote. It refuses another version, fields
// that it does not know and a State that is not [State.Validate]: a rotation
// that goes on from half of its state is worse than one that stops.
func Decode(data []byte) (State, error) {
	if len(data) > MaxSize {
		return State{}, fmt.Errorf("rotation state is %d bytes long, at most %d are read: this is no state file", len(data), MaxSize)
	}
	var head struct{ Version int }
	if err := json.Unmarshal(data, &head); err != nil {
		return State{}, fmt.Errorf("rotation state is not JSON: %w: use a copy of the file, or begin a new rotation, which finds out how far the last one got", err)
	}
	if head.Version != version {
		return State{}, fmt.Errorf("rotation state has version %d, this program reads %d: use the program that wrote it", head.Version, version)
	}
	var s State
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(&s); err != nil {
		return State{}, fmt.Errorf("rotation state cannot be decoded: %w", err)
	}
	return s, s.Validate()
}

// Validate says what is wrong with a State, if anything is.
func (s State) Validate() error {
	var err error
	switch {
	case s.Version != version:
		err = fmt.Errorf("version is %d, want %d", s.Version, version)
	case (s.Move == nil) == (s.OnePlugin == nil):
		err = errors.New("exactly one of move and onePlugin has to be set")
	case s.Round < 0:
		err = fmt.Errorf("round %d is negative", s.Round)
	case s.Migration != nil && (s.Migration.Goal.KeyID == "" || s.Migration.Goal.Round != s.Round):
		err = fmt.Errorf("the migration is for key_id %q in round %d, the rotation is in round %d", s.Migration.Goal.KeyID, s.Migration.Goal.Round, s.Round)
	case s.Move != nil:
		err = errors.Join(s.Plan.validate(len(Stages), slices.Contains(s.Move.New, Plain)), s.Move.validate(s.Migration != nil))
	default:
		err = errors.Join(s.Plan.validate(1, false), s.OnePlugin.validate(s.Migration))
	}
	if err != nil {
		return fmt.Errorf("rotation state cannot be used: %w", err)
	}
	return nil
}

// validate checks the plan of so many stages; plain is that identity is to write, which
// may be there to read with from the beginning.
func (p Plan) validate(hashes int, plain bool) error {
	if len(p.Configs) == 0 {
		return errors.New("no apiserver is expected: name all there are")
	}
	for name, configs := range p.Configs {
		differ := len(unique(configs))
		if plain && len(configs) == hashes && configs[Before.index()] == configs[Added.index()] {
			differ++
		}
		if name == "" || len(configs) != hashes || slices.Contains(configs, "") || differ != hashes {
			return fmt.Errorf("apiserver %q has the configuration hashes %q: it needs a name and %d that differ", name, configs, hashes)
		}
	}
	if err := namesOf("resource", p.Resources); err != nil {
		return err
	}
	if p.Hold < 0 || p.MaxAge <= 0 || p.RetryAfter <= 0 {
		return fmt.Errorf("hold %s, maxAge %s and retryAfter %s: the first may not be negative, the others have to be positive",
			time.Duration(p.Hold), time.Duration(p.MaxAge), time.Duration(p.RetryAfter))
	}
	return nil
}

// namesOf checks a list of names: some, none of them empty or twice.
func namesOf(what string, names []string) error {
	if len(names) == 0 || slices.Contains(names, "") || len(unique(names)) != len(names) {
		return fmt.Errorf("the %ss are %q: name at least one, and each once", what, names)
	}
	return nil
}

func unique(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// withDefaults fills in what a plan does not say; Hold may be zero.
func (p Plan) withDefaults() Plan {
	if p.MaxAge == 0 {
		p.MaxAge = DefaultMaxAge
	}
	if p.RetryAfter == 0 {
		p.RetryAfter = DefaultRetryAfter
	}
	return p
}

func (p Plan) instances() []string { return slices.Sorted(maps.Keys(p.Configs)) }

// clone is a State of which every part that Next changes is its own.
func (s State) clone() State {
	if s.Move != nil {
		t := *s.Move
		t.Former = slices.Clone(t.Former)
		s.Move = &t
	}
	if s.OnePlugin != nil {
		p := *s.OnePlugin
		p.Former, p.Seen = slices.Clone(p.Former), slices.Clone(p.Seen)
		if p.Candidate != nil {
			c := *p.Candidate
			p.Candidate = &c
		}
		s.OnePlugin = &p
	}
	if s.Migration != nil {
		m := *s.Migration
		m.Ended, m.Failures = maps.Clone(m.Ended), maps.Clone(m.Failures)
		s.Migration = &m
	}
	return s
}

// Resume is a State for one who goes on with it. Nobody saw what happened since
// it was stored, so what has to last without a break begins anew, and what was
// proved is proved again before anything comes of it: also that of a rotation that
// is done.
func Resume(s State, now time.Time) State { return resume(s, now, lax{}) }

func resume(s State, now time.Time, without lax) State {
	s = s.clone()
	if without.resume {
		return s
	}
	s.AuditAfter = s.late(now, without)
	if p := s.OnePlugin; p != nil {
		p.Candidate, p.ProvenAt = nil, time.Time{}
	}
	if t := s.Move; t != nil {
		switch t.Step {
		case stepSwap:
			t.AgreedAt, t.KeyID = time.Time{}, ""
		case stepRemove:
			t.Step, t.Since = stepProve, now
		case stepDone:
			t.reopen(now)
		}
	}
	return s
}

// Next is the state after an observation, and what to do now. It changes
// nothing that it is given. A State that [State.Validate] refuses comes back as
// it is, with an empty Decision. Who did not call it for longer than the MaxAge of
// the plan saw a break, and calls [Resume] before.
func Next(s State, o Observation, now time.Time) (State, Decision) { return next(s, o, now, lax{}) }

func next(s State, o Observation, now time.Time, without lax) (State, Decision) {
	if s.Validate() != nil {
		return s, Decision{}
	}
	there := s
	s = s.clone().mirrored()
	v := look(s.Plan.instances(), time.Duration(s.Plan.MaxAge), o, now, without)
	switch {
	case !s.isOf(v):
		return s.restored(there), Decision{Waiting: v.waiting()}
	}
	s.untold(v)
	switch {
	case s.Move != nil:
		d := s.nextOfMove(o, v)
		d = s.restarts(v, d)
		return s.restored(there), d.mirrored(s.Move.Back != nil)
	}
	return s, s.nextOfOne(o, v)
}

// isOf reports whether what the apiservers wrote is in an etcd of the rotation, as far
// as that was shown. Two clusters may have the same configuration, and a folder may be
// taken for that of the other: what was met in the one says nothing of the other.
func (s *State) isOf(v *view) bool {
	var found []uint64
	for _, name := range v.expected {
		found = append(found, v.shown[name].Etcds...)
	}
	slices.Sort(found)
	v.located = len(found) > 0
	switch {
	case len(found) == 0:
		return true
	case len(s.Etcds) == 0:
		s.Etcds = slices.Compact(found)
		return true
	case slices.ContainsFunc(found, func(id uint64) bool { return slices.Contains(s.Etcds, id) }):
		return true
	}
	for _, name := range v.expected {
		v.note(unshown, name, fmt.Sprintf("it stores in etcd cluster %x, and this rotation is of %x: name a new folder", found[0], s.Etcds[0]))
	}
	return false
}
