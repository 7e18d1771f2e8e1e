package fakevault

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// request is one of a client.
type request struct {
	operation string // a capability: create, read, update, delete, list
	path      string // below /v1/
	rest      string // of it, below the mount of the engine
	body      body
	token     *token
	peer      []*x509.Certificate
	secured   bool
}

// limit is that of Vault.
const limit = 32 << 20

func read(r *http.Request) (*request, error) {
	q := &request{path: strings.TrimPrefix(r.URL.Path, "/v1/"), body: newBody(nil)}
	if r.TLS != nil {
		q.peer, q.secured = r.TLS.PeerCertificates, true
	}
	switch r.Method {
	case http.MethodGet:
		q.operation = "read"
		if r.URL.Query().Get("list") == "true" {
			q.operation = "list"
		}
	case http.MethodPost, http.MethodPut:
		q.operation = "update"
	case http.MethodDelete:
		q.operation = "delete"
	case "LIST":
		q.operation = "list"
	}
	if q.operation != "update" {
		return q, nil
	}
	decoder := json.NewDecoder(io.LimitReader(r.Body, limit))
	decoder.UseNumber()
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil && err != io.EOF {
		return nil, fmt.Errorf("failed to parse JSON input: %w", err)
	}
	q.body = newBody(fields)
	return q, nil
}

// body is the JSON object of a request. It knows what of it was looked at: a field that
// means nothing here would mean something to a real Vault.
type body struct {
	fields map[string]any
	looked map[string]bool
}

func newBody(fields map[string]any) body { return body{fields, map[string]bool{}} }

// unknown is a field that nobody looked at.
func (b body) unknown() (name string, is bool) {
	for name := range b.fields {
		if !b.looked[name] {
			return name, true
		}
	}
	return "", false
}

// ignore is for fields that change nothing that can be seen here.
func (b body) ignore(names ...string) {
	for _, name := range names {
		b.looked[name] = true
	}
}

func (b body) field(name string) (value any, has bool) {
	b.looked[name] = true
	value, has = b.fields[name]
	return value, has
}

func (b body) text(name string) string {
	value, _ := b.field(name)
	s, _ := value.(string)
	return s
}

func (b body) has(name string) bool { _, has := b.field(name); return has }

func (b body) number(name string) (int, error) {
	switch value, _ := b.field(name); value := value.(type) {
	case nil:
		return 0, nil
	case json.Number:
		return strconv.Atoi(value.String())
	case string:
		return strconv.Atoi(value)
	default:
		return 0, fmt.Errorf("%T is no number", value)
	}
}

func (b body) is(name string) bool {
	switch value, _ := b.field(name); value := value.(type) {
	case bool:
		return value
	case string:
		return value == "true"
	}
	return false
}

// list is one of texts, or a text with commas.
func (b body) list(name string) []string {
	var all []string
	switch value, _ := b.field(name); value := value.(type) {
	case string:
		for _, part := range strings.Split(value, ",") {
			if part = strings.TrimSpace(part); part != "" {
				all = append(all, part)
			}
		}
	case []any:
		for _, part := range value {
			all = append(all, fmt.Sprint(part))
		}
	}
	return all
}

// duration is a number of seconds, or a text like "1h".
func (b body) duration(name string) time.Duration {
	if seconds, err := b.number(name); err == nil {
		return time.Duration(seconds) * time.Second
	}
	return span(b.text(name))
}

func span(text string) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(seconds) * time.Second
	}
	d, _ := time.ParseDuration(text)
	return d
}
