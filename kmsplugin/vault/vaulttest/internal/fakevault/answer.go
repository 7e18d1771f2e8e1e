package fakevault

import (
	"encoding/json"
	"maps"
	"net/http"
	"time"
)

// answer is what a client gets.
type answer struct {
	status   int // of an error; 0 is a success
	errors   []string
	data     map[string]any
	auth     *token // to be told
	login    bool   // whether the token is new
	warnings []string
	beside   bool   // whether data stands beside "data", too
	kind     string // of the mount that it is from
	whole    any    // instead of the envelope, as some of sys/ are
	wrapped  *wrapping
}

// wrapping is where an answer was put instead of being given.
type wrapping struct {
	token    *token
	path     string
	created  time.Time
	accessor string // of the secret-id or the token that is inside
}

func failed(status int, errors ...string) answer {
	if errors == nil {
		errors = []string{}
	}
	return answer{status: status, errors: errors}
}

func denied() answer { return failed(http.StatusForbidden, "permission denied") }

func invalid(text string) answer { return failed(http.StatusBadRequest, text) }

func missing() answer { return failed(http.StatusNotFound) }

func unsupported() answer {
	return failed(http.StatusMethodNotAllowed, "1 error occurred:\n\t* unsupported operation\n\n")
}

func unknown() answer {
	return failed(http.StatusNotFound, "1 error occurred:\n\t* unsupported path\n\n")
}

func ok(data map[string]any) answer { return answer{data: data} }

func done() answer { return answer{} }

// isEmpty reports whether there is nothing to tell but that it was done.
func (a answer) isEmpty() bool {
	return a.data == nil && a.auth == nil && a.whole == nil && a.wrapped == nil && len(a.warnings) == 0
}

func (a answer) write(w http.ResponseWriter, now time.Time) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case a.status != 0 && a.whole == nil:
		w.WriteHeader(a.status)
		tell(w, map[string]any{"errors": a.errors})
	case a.isEmpty():
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusNoContent)
	case a.whole != nil:
		if a.status != 0 {
			w.WriteHeader(a.status)
		}
		tell(w, a.whole)
	default:
		tell(w, a.envelope(now))
	}
}

func tell(w http.ResponseWriter, value any) {
	json.NewEncoder(w).Encode(value) // whoever asked may have left
}

// envelope is what every answer of an engine comes in.
func (a answer) envelope(now time.Time) map[string]any {
	all := map[string]any{
		"request_id": uuid(), "lease_id": "", "renewable": false, "lease_duration": 0,
		"data": nil, "wrap_info": nil, "warnings": nil, "auth": nil, "mount_type": a.kind,
	}
	if a.data != nil {
		all["data"] = a.data
	}
	if a.beside {
		maps.Copy(all, a.data)
	}
	if len(a.warnings) > 0 {
		all["warnings"] = a.warnings
	}
	if a.auth != nil {
		all["auth"] = a.auth.told(now)
		if a.login {
			all["mount_type"] = ""
		}
	}
	if a.wrapped != nil {
		all["request_id"], all["mount_type"] = "", ""
		all["wrap_info"] = a.wrapped.told()
	}
	return all
}

func (w *wrapping) told() map[string]any {
	all := map[string]any{
		"token": w.token.id, "accessor": w.token.accessor, "ttl": seconds(w.token.ttl),
		"creation_time": stamp(w.created), "creation_path": w.path,
	}
	if w.accessor != "" {
		all["wrapped_accessor"] = w.accessor
	}
	return all
}

func seconds(d time.Duration) int { return int(d / time.Second) }
