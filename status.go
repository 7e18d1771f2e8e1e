package atrest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/kube-atrest/atrest/providers"
	"github.com/kube-atrest/atrest/reload"
)

// StatusPath is where [Encryption.ServeStatus] answers. It is not a health
// path: whoever reads it is authenticated and authorized like for any other.
const StatusPath = "/debug/encryption"

// Status is what is known of an apiserver's encryption at one moment, for
// programs. It holds no key material. Times are absent when what they tell of
// has not happened.
type Status struct {
	// Process names the process, at random: whoever asks several apiservers and
	// gets the same name has asked one of them twice.
	Process string `json:"process"`
	// ConfigFile is the file, ConfigHash that of its content in use, as in
	// kube-apiserver's metric last_config_info.
	ConfigFile string `json:"configFile"`
	ConfigHash string `json:"configHash"`
	// Reload is absent unless the file is followed.
	Reload *ReloadStatus `json:"reload,omitempty"`
	// Providers are the KMS plugins, in the order of the file.
	Providers []ProviderStatus `json:"providers"`
}

// ReloadStatus is how following the file goes.
type ReloadStatus struct {
	// LoadedAt is when the content in use was taken into use.
	LoadedAt time.Time `json:"loadedAt"`
	// Outcome is ok; building while another content waits for its plugins, named
	// by BuildingHash; or failed when the file holds something that cannot be
	// used: then Error says why, FailedHash names it, and Retrying whether it is
	// tried again by itself.
	Outcome      string    `json:"outcome"`
	BuildingHash string    `json:"buildingHash,omitempty"`
	Error        string    `json:"error,omitempty"`
	FailedHash   string    `json:"failedHash,omitempty"`
	FailedSince  time.Time `json:"failedSince,omitzero"`
	Retrying     bool      `json:"retrying,omitempty"`
	// NoEvents says why changes are seen by the poll alone.
	NoEvents string `json:"noEvents,omitempty"`
}

// ProviderStatus is what is known of one KMS plugin.
type ProviderStatus struct {
	Names    []string `json:"names"`
	Endpoint string   `json:"endpoint"`
	// Role is write or read; WritesFor are the resources written with it.
	Role      string   `json:"role"`
	WritesFor []string `json:"writesFor,omitempty"`
	// State is ready, degraded (it only reads, and its plugin has a problem) or
	// not_ready. Problem is the class of the problem and Message its text.
	State   string    `json:"state"`
	Problem string    `json:"problem,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
	// KeyIDHash is sha256:<hex> of a key_id: of a plugin that is written with the
	// one under which values are written, and of one that is only read with the
	// one that it named last.
	KeyIDHash   string    `json:"keyIDHash,omitempty"`
	DEKCreated  time.Time `json:"dekCreated,omitzero"`
	DEKWrites   uint64    `json:"dekWrites,omitempty"`
	LastHealthy time.Time `json:"lastHealthy,omitzero"`
	// WritesLeft is for how many seconds writing goes on if the plugin is not
	// found healthy again.
	WritesLeft float64   `json:"writesLeftSeconds"`
	CachedDEKs int       `json:"cachedDEKs"`
	Reads      uint64    `json:"reads"`
	LastRead   time.Time `json:"lastRead,omitzero"`
}

// Status is what is known now. Nobody is asked.
func (e *Encryption) Status() Status {
	inUse := e.inUse()
	s := Status{Process: e.process, ConfigFile: e.options.ConfigFile, ConfigHash: inUse.Configuration().Hash(), Providers: []ProviderStatus{}}
	if c := e.controller.Load(); c != nil {
		s.Reload = reloadStatus(c.Status())
	}
	now := e.clock.Now()
	for _, p := range inUse.Health() {
		s.Providers = append(s.Providers, providerStatus(p, now))
	}
	return s
}

func reloadStatus(r reload.Status) *ReloadStatus {
	s := &ReloadStatus{LoadedAt: r.LoadedAt, Outcome: "ok", FailedHash: r.FailedHash, FailedSince: r.FailedSince, Retrying: r.Retrying}
	if r.LastError != nil {
		s.Outcome, s.Error = "failed", r.LastError.Error()
	}
	if r.Building != "" && r.Building != r.FailedHash {
		s.Outcome, s.BuildingHash = "building", r.Building
	}
	if r.WatchError != nil {
		s.NoEvents = r.WatchError.Error()
	}
	return s
}

func providerStatus(p providers.PluginHealth, now time.Time) ProviderStatus {
	s := ProviderStatus{
		Names: p.Names, Endpoint: p.Endpoint, Role: "read", WritesFor: p.WritesFor,
		State: "ready", Problem: string(p.Problem), Since: p.Since,
		KeyIDHash: p.KeyIDHash, DEKCreated: p.DEKCreated, DEKWrites: p.DEKWrites, LastHealthy: p.LastHealthy,
		CachedDEKs: p.CachedDEKs, Reads: p.Reads, LastRead: p.LastRead,
	}
	if p.Writes {
		s.Role = "write"
	}
	if p.Err != nil {
		s.Message, s.State = p.Err.Error(), "degraded"
	}
	if !p.Ready() {
		s.State = "not_ready"
	}
	if !p.WritesUntil.IsZero() {
		s.WritesLeft = max(0, p.WritesUntil.Sub(now).Seconds())
	}
	return s
}

// AskPath has the plugins asked when it is posted to, and answers like
// [StatusPath].
const AskPath = StatusPath + "/ask"

// askTimeout bounds how long an answer waits for plugins that hang.
const askTimeout = 10 * time.Second

// ask has the plugins asked, and waits for those that answer in time.
func (e *Encryption) ask(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer e.clock.AfterFunc(askTimeout, cancel).Stop()
	e.inUse().Ask(ctx)
}

// ServeStatus answers requests for [StatusPath] with [Encryption.Status] as
// JSON, and leaves all others to next. A POST to [AskPath] has every plugin asked
// how it is before: what it says, such as a new key_id, is known then instead of
// at the next poll. One that was asked within the last second is not asked
// again. Both have to stand behind authentication and authorization;
// [Options.ApplyTo] puts them there.
func (e *Encryption) ServeStatus(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case StatusPath:
		case AskPath:
			if r.Method != http.MethodPost {
				w.Header().Set("Allow", http.MethodPost)
				http.Error(w, "post to "+AskPath+" to have the KMS plugins asked, or get "+StatusPath, http.StatusMethodNotAllowed)
				return
			}
			e.ask(r.Context())
		default:
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		_ = out.Encode(e.Status()) // what fails is the connection, and there is nobody left to tell
	})
}
