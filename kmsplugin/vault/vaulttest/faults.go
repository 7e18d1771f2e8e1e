package vaulttest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest/internal/fakevault"
)

// Faults are what goes wrong with the fake. Paths are without /v1/ and mean all that begins
// with them; of several faults the newest that is of a path counts.
type Faults struct {
	vault *fakevault.Vault

	mu    sync.Mutex
	rules []rule
	clear chan struct{} // closed by Clear
	seen  []string
}

// rule is a fault at a path.
type rule struct {
	path string
	do   func(w http.ResponseWriter, r *http.Request) (done bool)
}

// ServeHTTP has the fake answer unless something goes wrong.
func (f *Faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	f.mu.Lock()
	f.seen = append(f.seen, r.Method+" "+path)
	var do func(http.ResponseWriter, *http.Request) bool
	for _, rule := range f.rules {
		if strings.HasPrefix(path, rule.path) {
			do = rule.do
		}
	}
	f.mu.Unlock()
	if do == nil || !do(w, r) {
		f.vault.ServeHTTP(w, r)
	}
}

func (f *Faults) add(path string, do func(http.ResponseWriter, *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, rule{path, do})
}

// Clear ends all faults; requests that hang are answered.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.clear)
	f.rules, f.clear = nil, make(chan struct{})
}

// Requests is how many requests came for a path since the start.
func (f *Faults) Requests(path string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, seen := range f.seen {
		if _, of, _ := strings.Cut(seen, " "); strings.HasPrefix(of, path) {
			n++
		}
	}
	return n
}

// Answer has everything at a path be answered by this, as in 429, or 473 of a standby, or
// JSON that is none.
func (f *Faults) Answer(path string, status int, body string) {
	f.add(path, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write([]byte(body))
		return true
	})
}

// Rewrite has the true answers at a path be changed.
func (f *Faults) Rewrite(path string, change func(status int, body []byte) (int, []byte)) {
	f.add(path, func(w http.ResponseWriter, r *http.Request) bool {
		kept := httptest.NewRecorder()
		f.vault.ServeHTTP(kept, r)
		status, body := change(kept.Code, kept.Body.Bytes())
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write(body)
		return true
	})
}

// Hang has requests at a path wait until [Faults.Clear] or until who asked leaves.
func (f *Faults) Hang(path string) {
	f.mu.Lock()
	cleared := f.clear
	f.mu.Unlock()
	f.add(path, func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-cleared:
			return false
		case <-r.Context().Done():
			panic(http.ErrAbortHandler) // who has left must not find an answer
		}
	})
}

// Drop closes the connections of the next n requests at a path without an answer.
func (f *Faults) Drop(path string, n int) {
	var mu sync.Mutex
	f.add(path, func(http.ResponseWriter, *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 {
			return false
		}
		n--
		panic(http.ErrAbortHandler)
	})
}

// Redirect sends every request at a path to another address, as a standby does.
func (f *Faults) Redirect(path, address string) {
	f.add(path, func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, address+r.URL.Path, http.StatusTemporaryRedirect)
		return true
	})
}

// Lag has a key of Transit be shown as it was when version was its latest, which a standby
// may do.
func (f *Faults) Lag(key string, version int) {
	f.Rewrite("transit/keys/"+key, func(status int, body []byte) (int, []byte) {
		return status, edit(body, func(data map[string]any) {
			data["latest_version"] = version
			versions, _ := data["keys"].(map[string]any)
			for number := range versions {
				if n, err := strconv.Atoi(number); err == nil && n > version {
					delete(versions, number)
				}
			}
		})
	})
}

// Behind remembers a key of Transit as it is. Once what it returns is called, the key is shown as
// it was then, as by a standby that lags, whatever became of it: rotated, or deleted and made
// again.
func (f *Faults) Behind(key string) (lag func()) {
	path := "transit/keys/" + key
	asked := httptest.NewRequest(http.MethodGet, "/v1/"+path, nil)
	asked.Header.Set("X-Vault-Token", f.vault.Token)
	then := httptest.NewRecorder()
	f.vault.ServeHTTP(then, asked)
	return func() {
		f.Rewrite(path, func(int, []byte) (int, []byte) { return then.Code, then.Body.Bytes() })
	}
}

// Mislabel has encryption with a key say that it was with another version.
func (f *Faults) Mislabel(key string, version int) {
	f.Rewrite("transit/encrypt/"+key, func(status int, body []byte) (int, []byte) {
		return status, edit(body, func(data map[string]any) {
			ciphertext, _ := data["ciphertext"].(string)
			if parts := strings.SplitN(ciphertext, ":", 3); len(parts) == 3 {
				data["ciphertext"] = "vault:v" + strconv.Itoa(version) + ":" + parts[2]
				data["key_version"] = version
			}
		})
	})
}

// Advance has the clock of Vault go ahead: leases end, and keys are made later.
func (f *Faults) Advance(by time.Duration) { f.vault.Advance(by) }

// edit changes what "data" of an answer has.
func edit(body []byte, change func(data map[string]any)) []byte {
	var all map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&all) != nil {
		return body
	}
	if data, is := all["data"].(map[string]any); is {
		change(data)
	}
	changed, err := json.Marshal(all)
	if err != nil {
		return body
	}
	return changed
}
