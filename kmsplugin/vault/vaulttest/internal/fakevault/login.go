package fakevault

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// grant is what a role gives who logs in with it.
type grant struct {
	policies  []string
	bare      bool // without the policy "default"
	ttl, most time.Duration
}

func (b body) grant() grant {
	policies := b.list("token_policies")
	if policies == nil {
		policies = b.list("policies")
	}
	return grant{policies: policies, bare: b.is("token_no_default_policy"), ttl: b.duration("token_ttl"), most: b.duration("token_max_ttl")}
}

// login issues the token of a role.
func (v *Vault) login(q *request, g grant, display string, meta map[string]string) answer {
	t := &token{path: q.path, display: display, policies: withDefault(g.policies), meta: meta, ttl: g.ttl, most: g.most, renewable: true, orphan: true, entity: uuid()}
	if g.bare {
		t.policies = g.policies
	}
	if t.ttl == 0 {
		t.ttl = lease
	}
	if t.most > 0 {
		t.ttl = min(t.ttl, t.most)
	}
	return answer{auth: v.issue(t), login: true}
}

// approle logs in programs that have a secret-id.
type approle struct {
	roles map[string]*appRole
}

type appRole struct {
	grant
	name, id string
	life     time.Duration // of secret-ids
	uses     int
	secrets  map[string]*secretID
}

type secretID struct {
	accessor string
	ends     time.Time
	uses     int // that are left, 0 if nobody counts
}

func (*approle) kind() string { return "approle" }

func (e *approle) answer(v *Vault, q *request) answer {
	if q.rest == "login" {
		return e.login(v, q)
	}
	rest, is := strings.CutPrefix(q.rest, "role/")
	name, action, _ := strings.Cut(rest, "/")
	role := e.roles[name]
	switch {
	case !is:
		return missing()
	case action == "" && q.operation == "update":
		return e.write(q, name)
	case role == nil && action == "secret-id":
		return failed(http.StatusNotFound, fmt.Sprintf("role %q does not exist", name))
	case role == nil:
		return missing()
	}
	switch q.operation + " " + action {
	case "read role-id":
		return ok(map[string]any{"role_id": role.id})
	case "update role-id":
		role.id = q.body.text("role_id")
		return done()
	case "update secret-id":
		return role.secret(v.now())
	case "update secret-id/destroy":
		delete(role.secrets, q.body.text("secret_id"))
		return done()
	case "delete ":
		delete(e.roles, name)
		return done()
	}
	return unsupported()
}

func (e *approle) write(q *request, name string) answer {
	role := e.roles[name]
	if role == nil {
		role = &appRole{name: name, id: uuid(), secrets: map[string]*secretID{}}
		e.roles[name] = role
	}
	role.grant, role.life = q.body.grant(), q.body.duration("secret_id_ttl")
	if id := q.body.text("role_id"); id != "" {
		role.id = id
	}
	uses, err := q.body.number("secret_id_num_uses")
	if err != nil {
		return invalid(err.Error())
	}
	role.uses = uses
	return done()
}

func (r *appRole) secret(now time.Time) answer {
	id, s := uuid(), &secretID{accessor: uuid(), uses: r.uses}
	if r.life > 0 {
		s.ends = now.Add(r.life)
	}
	r.secrets[id] = s
	return ok(map[string]any{"secret_id": id, "secret_id_accessor": s.accessor, "secret_id_ttl": seconds(r.life), "secret_id_num_uses": r.uses})
}

func (e *approle) login(v *Vault, q *request) answer {
	id, secret := strings.TrimSpace(q.body.text("role_id")), strings.TrimSpace(q.body.text("secret_id"))
	var role *appRole
	for _, r := range e.roles {
		if r.id == id {
			role = r
		}
	}
	switch {
	case q.operation != "update":
		return unsupported()
	case id == "":
		return failed(http.StatusInternalServerError, "failed to determine alias name from login request")
	case role == nil:
		return invalid("invalid role or secret ID")
	case secret == "":
		return invalid("missing secret_id")
	}
	s := role.secrets[secret]
	if s == nil || !s.ends.IsZero() && !v.now().Before(s.ends) {
		delete(role.secrets, secret)
		return invalid("invalid role or secret ID")
	}
	if s.uses == 1 {
		delete(role.secrets, secret)
	}
	s.uses = max(s.uses-1, 0)
	return v.login(q, role.grant, "approle", map[string]string{"role_name": role.name})
}

// cert logs in who has the key of a certificate.
type cert struct {
	roles map[string]*certRole
}

type certRole struct {
	grant
	name string
	pool pool
}

func (*cert) kind() string { return "cert" }

func (e *cert) answer(v *Vault, q *request) answer {
	if q.rest == "login" {
		return e.login(v, q)
	}
	name, is := strings.CutPrefix(q.rest, "certs/")
	switch {
	case !is:
		return missing()
	case q.operation == "delete":
		delete(e.roles, name)
		return done()
	case q.operation != "update":
		return unsupported()
	}
	q.body.ignore("display_name")
	pool, err := parsePool(q.body.text("certificate"))
	if err != nil {
		return invalid("failed to parse certificate")
	}
	e.roles[name] = &certRole{grant: q.body.grant(), name: name, pool: pool}
	return done()
}

func (e *cert) login(v *Vault, q *request) answer {
	switch {
	case !q.secured:
		return invalid("tls connection required")
	case len(q.peer) == 0:
		return invalid("client certificate must be supplied")
	}
	peer := q.peer[0]
	wanted := q.body.text("name")
	for name, role := range e.roles {
		if wanted != "" && name != wanted || !role.pool.has(q.peer, v.now()) {
			continue
		}
		return v.login(q, role.grant, name, map[string]string{
			"cert_name": name, "common_name": peer.Subject.CommonName, "serial_number": peer.SerialNumber.String(),
			"subject_key_id": hex(peer.SubjectKeyId), "authority_key_id": hex(peer.AuthorityKeyId),
		})
	}
	return invalid("failed to match all constraints for this login certificate")
}
