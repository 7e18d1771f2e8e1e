package vaulttest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// reviewer is the part of an apiserver that tells whether a token is a service account's.
type reviewer struct {
	url string

	mu       sync.Mutex
	accounts map[string]string // by token
}

func startReviewer(t testing.TB) *reviewer {
	r := &reviewer{accounts: map[string]string{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *reviewer) add(token, account string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accounts[token] = account
}

func (r *reviewer) forget(account string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for token, of := range r.accounts {
		if of == account {
			delete(r.accounts, token)
		}
	}
}

func (r *reviewer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var review struct {
		Spec struct {
			Token     string   `json:"token"`
			Audiences []string `json:"audiences"`
		} `json:"spec"`
	}
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	account, known := r.accounts[review.Spec.Token]
	r.mu.Unlock()
	status := map[string]any{"authenticated": known}
	if known {
		status["user"] = map[string]any{"username": "system:serviceaccount:" + account, "uid": "uid-" + account}
		status["audiences"] = review.Spec.Audiences
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status})
}

// cutAccount is a service account's namespace and name.
func cutAccount(account string) (namespace, name string) {
	namespace, name, _ = strings.Cut(account, ":")
	return namespace, name
}
