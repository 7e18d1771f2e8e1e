package healthz

import "time"

// Status is what is known of an apiserver's encryption at one moment. It holds no
// key material. Times are by the clock of the apiserver, and absent in JSON when
// what they tell of has not happened.
type Status struct {
	// Process names the process, at random: whoever asks several apiservers and
	// gets the same name has asked one of them twice.
	Process string `json:"process"`
	// APIServerIDHash is sha256:<hex> of the ID of the apiserver, as the label
	// apiserver_id_hash of kube-apiserver's metrics; empty if it has none. Its
	// identity Lease is called by that ID.
	APIServerIDHash string `json:"apiServerIDHash,omitempty"`
	// At is the moment.
	At time.Time `json:"at,omitzero"`
	// Ended reports whether encryption at rest has ended in a server that goes on: then
	// nothing is read or written any longer, whatever the providers are.
	Ended bool `json:"ended,omitempty"`
	// ConfigFile is the file, ConfigHash that of its content in use, as in
	// kube-apiserver's metric last_config_info.
	ConfigFile string `json:"configFile"`
	ConfigHash string `json:"configHash"`
	// Reload is absent unless the file is followed.
	Reload *Reload `json:"reload,omitempty"`
	// Providers are the KMS plugins, in the order of the file.
	Providers []Provider `json:"providers"`
}

// Reload is how following the file goes.
type Reload struct {
	// LoadedAt is when the content in use was taken into use.
	LoadedAt time.Time `json:"loadedAt"`
	// Outcome is what came of the file as it is now. While it is building,
	// BuildingHash names what waits for its plugins. When it has failed, Error says
	// why, FailedHash names the content, if one could be read, and Retrying reports
	// whether it is tried again by itself.
	Outcome      Outcome   `json:"outcome"`
	BuildingHash string    `json:"buildingHash,omitempty"`
	Error        string    `json:"error,omitempty"`
	FailedHash   string    `json:"failedHash,omitempty"`
	FailedSince  time.Time `json:"failedSince,omitzero"`
	Retrying     bool      `json:"retrying,omitempty"`
	// NoEvents says why changes are seen by the poll alone.
	NoEvents string `json:"noEvents,omitempty"`
}

// Outcome is what came of a content of the file.
type Outcome string

// The outcomes. While a content is building or has failed, the one before is in
// use.
const (
	Loaded   Outcome = "ok"
	Building Outcome = "building"
	Failed   Outcome = "failed"
)

// Provider is what is known of one KMS plugin.
type Provider struct {
	// Names are those of the providers on the plugin, and Endpoint is where it
	// serves, as the file has them.
	Names    []string `json:"names"`
	Endpoint string   `json:"endpoint"`
	// Role is what it is used for; WritesFor are the resources written with it.
	Role      Role     `json:"role"`
	WritesFor []string `json:"writesFor,omitempty"`
	// State is how it is for that: see [Provider.Ready]. Problem is the class of
	// what is wrong and Message its text, both empty for nothing; Since is when
	// that began.
	State   State     `json:"state"`
	Problem string    `json:"problem,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
	// KeyIDHash is sha256:<hex> of a key_id: of a plugin that is written with the
	// one under which values are written, and of one that is only read with the
	// one that it named last.
	KeyIDHash string `json:"keyIDHash,omitempty"`
	// DEKCreated is when the DEK that is written with was made, and DEKWrites how
	// many values it has sealed.
	DEKCreated time.Time `json:"dekCreated,omitzero"`
	DEKWrites  uint64    `json:"dekWrites,omitempty"`
	// DEKHash is sha256:<hex> of that DEK as it is stored, sealed, with every object
	// that is written with it: so it is found in etcd which objects those are.
	DEKHash string `json:"dekHash,omitempty"`
	// LastHealthy is when the plugin was last asked and found well.
	LastHealthy time.Time `json:"lastHealthy,omitzero"`
	// WritesUntil is until when writing goes on if the plugin is not found well
	// again, zero if nothing can be written; WritesLeft is in how many seconds.
	WritesUntil time.Time `json:"writesUntil,omitzero"`
	WritesLeft  float64   `json:"writesLeftSeconds"`
	// CachedDEKs are the DEKs in memory, Reads the values that were opened, the
	// last of them at LastRead, and LastWrite is when a value was last sealed.
	CachedDEKs int       `json:"cachedDEKs"`
	Reads      uint64    `json:"reads"`
	LastRead   time.Time `json:"lastRead,omitzero"`
	LastWrite  time.Time `json:"lastWrite,omitzero"`
}

// Role is what a plugin is used for.
type Role string

// The roles.
const (
	Reads  Role = "read"  // to read what it has wrapped
	Writes Role = "write" // to write with, and to read
)

// State is how a plugin is for what it is used for.
type State string

// The states.
const (
	Ready    State = "ready"
	Degraded State = "degraded"  // it has a problem, and is only read with
	NotReady State = "not_ready" // it has a problem, and is written with
)

// Ready reports whether the plugin does not stand against the readiness of its
// server. One that is only read with never does: what was read before is read
// without it.
func (p *Provider) Ready() bool { return p.Problem == "" || p.Role == Reads }

// Told is s as it is told at a moment: with what follows of each provider, which is
// its state and how long writes go on.
func (s Status) Told(now time.Time) Status {
	told := make([]Provider, len(s.Providers))
	for i, p := range s.Providers {
		told[i] = p.at(now)
	}
	s.At, s.Providers = now, told
	return s
}

func (p Provider) at(now time.Time) Provider {
	switch {
	case p.Problem == "":
		p.State = Ready
	case p.Ready():
		p.State = Degraded
	default:
		p.State = NotReady
	}
	p.WritesLeft = 0
	if !p.WritesUntil.IsZero() {
		p.WritesLeft = max(0, p.WritesUntil.Sub(now).Seconds())
	}
	return p
}
