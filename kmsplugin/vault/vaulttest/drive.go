package vaulttest

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"
)

// silent is for servers: what a client does wrong is for the client to say.
var silent = log.New(io.Discard, "", 0)

// Answer is one of Vault.
type Answer struct {
	Status int
	Body   []byte
	// JSON is the Body as an object; nil if it is none.
	JSON map[string]any
}

// data is what of an answer an engine gave.
func (a Answer) data() map[string]any {
	data, _ := a.JSON["data"].(map[string]any)
	return data
}

// in is a text somewhere in an answer, as in in("auth", "client_token").
func (a Answer) in(object, name string) string {
	inner, _ := a.JSON[object].(map[string]any)
	text, _ := inner[name].(string)
	return text
}

// Do makes a request as the API has it: path is below /v1/, body becomes JSON, and token may
// be empty. Headers come in pairs of name and value.
func (s *Server) Do(method, path, token string, body map[string]any, headers ...string) Answer {
	s.t.Helper()
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		require.NoError(s.t, err)
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.Address+"/v1/"+path, content)
	require.NoError(s.t, err)
	if token != "" {
		request.Header.Set("X-Vault-Token", token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.client.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	answer := Answer{Status: response.StatusCode}
	answer.Body, err = io.ReadAll(response.Body)
	require.NoError(s.t, err)
	if json.Unmarshal(answer.Body, &answer.JSON) != nil {
		answer.JSON = nil
	}
	return answer
}

// Write writes to a path as root, and returns what "data" has.
func (s *Server) Write(path string, body map[string]any) map[string]any {
	s.t.Helper()
	return s.as(http.MethodPost, path, body).data()
}

// Read reads a path as root, and returns what "data" has.
func (s *Server) Read(path string) map[string]any {
	s.t.Helper()
	return s.as(http.MethodGet, path, nil).data()
}

// as does something as root that has to succeed.
func (s *Server) as(method, path string, body map[string]any, headers ...string) Answer {
	s.t.Helper()
	answer := s.Do(method, path, s.RootToken, body, headers...)
	require.Less(s.t, answer.Status, 300, "%s %s: %s", method, path, answer.Body)
	return answer
}

// CreateKey makes a key of Transit: "", which is aes256-gcm96, or another type. options
// are more fields of the request, in pairs of name and value.
func (s *Server) CreateKey(name, kind string, options ...any) {
	s.t.Helper()
	body := map[string]any{}
	if kind != "" {
		body["type"] = kind
	}
	for i := 0; i+1 < len(options); i += 2 {
		body[options[i].(string)] = options[i+1]
	}
	s.Write("transit/keys/"+name, body)
}

// Rotate gives a key another version.
func (s *Server) Rotate(name string) { s.t.Helper(); s.Write("transit/keys/"+name+"/rotate", nil) }

// Config changes what may be done with a key: min_decryption_version,
// min_encryption_version, deletion_allowed.
func (s *Server) Config(name, field string, value any) {
	s.t.Helper()
	s.Write("transit/keys/"+name+"/config", map[string]any{field: value})
}

// Delete deletes a key, which is allowed before.
func (s *Server) Delete(name string) {
	s.t.Helper()
	s.Config(name, "deletion_allowed", true)
	s.as(http.MethodDelete, "transit/keys/"+name, nil)
}

// Trim forgets the versions of a key before one for ever; the minimum versions follow.
func (s *Server) Trim(name string, from int) {
	s.t.Helper()
	s.Config(name, "min_encryption_version", from)
	s.Config(name, "min_decryption_version", from)
	s.Write("transit/keys/"+name+"/trim", map[string]any{"min_available_version": from})
}

// Policy makes or changes a policy.
func (s *Server) Policy(name, rules string) {
	s.t.Helper()
	s.Write("sys/policies/acl/"+name, map[string]any{"policy": rules})
}

// Token makes a token. A ttl of 0 is Vault's own.
func (s *Server) Token(ttl time.Duration, policies ...string) string {
	s.t.Helper()
	answer := s.as(http.MethodPost, "auth/token/create", map[string]any{"ttl": ttl.String(), "policies": policies})
	return answer.in("auth", "client_token")
}

// Revoke ends a token.
func (s *Server) Revoke(token string) {
	s.t.Helper()
	s.Write("auth/token/revoke", map[string]any{"token": token})
}
