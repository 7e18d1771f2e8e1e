package fakevault

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// ServeHTTP answers as Vault does.
func (v *Vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := read(r)
	v.mu.Lock()
	a := v.respond(r, q, err)
	now := v.now()
	v.mu.Unlock()
	a.write(w, now)
}

func (v *Vault) respond(r *http.Request, q *request, broken error) answer {
	switch {
	case !strings.HasPrefix(r.URL.Path, "/v1/"):
		return failed(http.StatusNotFound)
	case broken != nil:
		return invalid(broken.Error())
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "":
		return invalid("mime: no media type")
	case q.operation == "":
		return failed(http.StatusMethodNotAllowed)
	}
	a := v.dispatch(r, q)
	if name, is := q.body.unknown(); is && a.status == 0 {
		return failed(http.StatusNotImplemented, fmt.Sprintf("the fake does not know what %q means to %s: teach it, and record what the real one answers", name, q.path))
	}
	return v.wrap(q, a, r.Header.Get("X-Vault-Wrap-TTL"))
}

func (v *Vault) dispatch(r *http.Request, q *request) answer {
	if handle, open := unauthenticated[q.path]; open {
		return handle(v, q)
	}
	if v.sealed {
		return failed(http.StatusServiceUnavailable, "Vault is sealed")
	}
	return v.authenticated(q, tokenOf(r))
}

func tokenOf(r *http.Request) string {
	if id := r.Header.Get("X-Vault-Token"); id != "" {
		return id
	}
	id, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return id
}

// authenticated finds who asks and what answers.
func (v *Vault) authenticated(q *request, id string) answer {
	switch q.path {
	case "sys/wrapping/unwrap":
		return v.unwrap(q, id)
	case "sys/wrapping/lookup":
		return v.lookWrapped(q)
	}
	e, login := v.find(q)
	if t, isTransit := e.(*transit); isTransit && t.creates(q) {
		q.operation = "create"
	}
	if !login {
		t := v.tokens[id]
		switch {
		case id == "":
			return denied()
		case t != nil && t.unwraps != nil: // which is good for one use, and this was it
			delete(v.tokens, id)
			return failed(http.StatusForbidden, "1 error occurred:\n\t* permission denied\n\n")
		case t == nil || t.isOver(v.now()):
			return failed(http.StatusForbidden, "2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n")
		case !v.may(t, q):
			return failed(http.StatusForbidden, "1 error occurred:\n\t* permission denied\n\n")
		}
		q.token = t
	}
	switch {
	case strings.HasPrefix(q.path, "sys/"):
		a := v.sys(q)
		a.kind = "system"
		return a
	case e == nil:
		return failed(http.StatusNotFound, fmt.Sprintf("no handler for route %q. route entry not found.", q.path))
	}
	a := e.answer(v, q)
	a.kind = e.kind()
	return a
}

// find is the engine that a request is for, and whether it is a login.
func (v *Vault) find(q *request) (e engine, login bool) {
	if path, isAuth := strings.CutPrefix(q.path, "auth/"); isAuth {
		e, q.rest = mounted(v.auths, path)
		return e, e != nil && q.rest == "login"
	}
	e, q.rest = mounted(v.secrets, q.path)
	return e, false
}

// wrap puts an answer away for who has the token that is given instead.
func (v *Vault) wrap(q *request, a answer, ttl string) answer {
	if ttl == "" || a.status != 0 || a.isEmpty() {
		return a
	}
	life := span(ttl)
	if life <= 0 {
		return invalid(fmt.Sprintf("error parsing X-Vault-Wrap-TTL header: time: invalid duration %q", ttl))
	}
	t := v.issue(&token{path: q.path, policies: []string{"response-wrapping"}, ttl: life, unwraps: &a})
	inside, _ := a.data["secret_id_accessor"].(string)
	if a.auth != nil {
		inside = a.auth.accessor
	}
	return answer{wrapped: &wrapping{token: t, path: q.path, created: v.now(), accessor: inside}}
}

// unwrap gives what was put away, once.
func (v *Vault) unwrap(q *request, id string) answer {
	if inside := q.body.text("token"); inside != "" {
		id = inside
	}
	if id == "" {
		return failed(http.StatusForbidden, "error validating wrapping token: token is empty")
	}
	t := v.tokens[id]
	if t == nil || t.unwraps == nil || t.isOver(v.now()) {
		return invalid("wrapping token is not valid or does not exist")
	}
	delete(v.tokens, id)
	return *t.unwraps
}

// stamp is how Vault writes times.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
