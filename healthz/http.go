package healthz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Where an apiserver answers. Neither is a health path: whoever asks is
// authenticated and authorized like for any other.
const (
	// Path answers a GET with the [Status].
	Path = "/debug/encryption"
	// AskPath answers a POST like Path, after the plugins were asked.
	AskPath = Path + "/ask"
)

// Handler answers requests for [Path] and [AskPath] with what is told at the time, as
// JSON, and leaves all others to next. ask has the plugins asked and waits for their
// answers. It has to stand behind authentication and authorization.
func Handler(tell func() Status, ask func(context.Context), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case Path:
		case AskPath:
			if r.Method != http.MethodPost {
				w.Header().Set("Allow", http.MethodPost)
				http.Error(w, "post to "+AskPath+" to have the KMS plugins asked, or get "+Path, http.StatusMethodNotAllowed)
				return
			}
			ask(r.Context())
		default:
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		_ = out.Encode(tell()) // what fails is the connection, and there is nobody left to tell
	})
}

// MaxSize is how many bytes of an answer are read at most.
const MaxSize = 4 << 20

// Decode reads an answer. It fails if that is longer than [MaxSize], or is not what
// an apiserver of this project tells. Fields that it does not know are left out: the
// apiserver may be newer.
func Decode(data []byte) (Status, error) {
	var s Status
	if len(data) > MaxSize {
		return s, fmt.Errorf("state of the apiserver is %d bytes long, at most %d are read", len(data), MaxSize)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return Status{}, fmt.Errorf("state of the apiserver is not JSON: %w: is this %s?", err, Path)
	}
	if s.ConfigHash == "" {
		return Status{}, errors.New("state of the apiserver has no configHash: is this " + Path + "?")
	}
	return s, nil
}
