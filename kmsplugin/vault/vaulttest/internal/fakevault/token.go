package fakevault

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// token is who may do what, and for how long.
type token struct {
	id, accessor string
	path         string // of the login
	display      string
	policies     []string
	meta         map[string]string
	created      time.Time
	ttl          time.Duration // of the login; 0 is for ever
	most         time.Duration // of all renewals, 0 if there is no end to them
	ends         time.Time
	renewable    bool
	orphan       bool
	parent       string
	uses         int
	entity       string
	renewed      time.Time
	explicit     bool    // whether most was asked for with the token
	unwraps      *answer // that a wrapping token is for
}

// lease is how long tokens live that were given no time.
const lease = 768 * time.Hour

// issue gives a token its names and its time.
func (v *Vault) issue(t *token) *token {
	t.id, t.accessor = "hvs."+random(), random()[:24]
	t.created = v.now()
	if t.ttl > 0 {
		t.ends = t.created.Add(t.ttl)
	}
	v.tokens[t.id] = t
	return t
}

func (t *token) isOver(now time.Time) bool { return !t.ends.IsZero() && !now.Before(t.ends) }

func (t *token) left(now time.Time) int {
	if t.ends.IsZero() {
		return 0
	}
	return seconds(t.ends.Sub(now).Round(time.Second))
}

// revoke ends a token and all that were made with it.
func (v *Vault) revoke(id string) {
	delete(v.tokens, id)
	for child, t := range v.tokens {
		if t.parent == id {
			v.revoke(child)
		}
	}
}

// told is a token in the answer to a login or a renewal.
func (t *token) told(now time.Time) map[string]any {
	var meta any
	if t.meta != nil {
		meta = t.meta
	}
	return map[string]any{
		"client_token": t.id, "accessor": t.accessor, "policies": t.policies, "token_policies": t.policies,
		"metadata": meta, "lease_duration": t.left(now), "renewable": t.renewable, "entity_id": t.entity,
		"token_type": "service", "orphan": t.orphan, "mfa_requirement": nil, "num_uses": t.uses,
	}
}

// looked is a token as a look at it tells it.
func (t *token) looked(now time.Time) map[string]any {
	var meta, ends any
	if t.meta != nil {
		meta = t.meta
	}
	if !t.ends.IsZero() {
		ends = stamp(t.ends)
	}
	data := map[string]any{
		"id": t.id, "accessor": t.accessor, "policies": t.policies, "path": t.path, "display_name": t.display,
		"meta": meta, "creation_time": t.created.Unix(), "creation_ttl": seconds(t.ttl), "ttl": t.left(now),
		"expire_time": ends, "explicit_max_ttl": 0, "num_uses": t.uses, "orphan": t.orphan, "entity_id": t.entity,
		"type": "service",
	}
	if t.explicit {
		data["explicit_max_ttl"] = seconds(t.most)
	}
	if !t.renewed.IsZero() {
		data["last_renewal"], data["last_renewal_time"] = stamp(t.renewed), t.renewed.Unix()
	}
	if !t.ends.IsZero() {
		data["issue_time"] = stamp(t.created)
		data["renewable"] = t.renewable
	}
	return data
}

// withDefault are policies as a token has them.
func withDefault(policies []string) []string {
	all := append([]string{"default"}, policies...)
	slices.Sort(all)
	return slices.Compact(all)
}

// tokens is the engine at auth/token.
type tokens struct{}

func (tokens) kind() string { return "token" }

func (tokens) answer(v *Vault, q *request) answer {
	switch q.operation + " " + q.rest {
	case "update create":
		return v.createToken(q)
	case "read lookup-self", "update lookup-self":
		return ok(q.token.looked(v.now()))
	case "update lookup":
		t := v.tokens[q.body.text("token")]
		if t == nil || t.isOver(v.now()) {
			return failed(http.StatusForbidden, "bad token")
		}
		return ok(t.looked(v.now()))
	case "update renew-self":
		return v.renew(q)
	case "update revoke-self":
		v.revoke(q.token.id)
		return done()
	case "update revoke":
		v.revoke(q.body.text("token"))
		return done()
	}
	return missing()
}

func (v *Vault) createToken(q *request) answer {
	t := &token{path: "auth/token/create", display: "token", ttl: q.body.duration("ttl"), renewable: true, parent: q.token.id}
	policies := q.body.list("policies")
	switch {
	case len(policies) == 0:
		t.policies = q.token.policies
	case q.body.is("no_default_policy"):
		t.policies = policies
	default:
		t.policies = withDefault(policies)
	}
	if q.body.has("renewable") {
		t.renewable = q.body.is("renewable")
	}
	if t.ttl == 0 && !slices.Contains(t.policies, "root") {
		t.ttl = lease
	}
	if most := q.body.duration("explicit_max_ttl"); most > 0 {
		t.most, t.ttl, t.explicit = most, min(t.ttl, most), true
	}
	if q.body.is("no_parent") {
		t.parent, t.orphan = "", true
	}
	return answer{auth: v.issue(t)}
}

func (v *Vault) renew(q *request) answer {
	t := q.token
	switch {
	case t.ends.IsZero():
		return invalid("invalid lease ID")
	case !t.renewable:
		return invalid("lease is not renewable")
	}
	more := q.body.duration("increment")
	if more == 0 {
		more = t.ttl
	}
	a := answer{auth: t}
	t.renewed = v.now()
	t.ends = t.renewed.Add(more)
	if end := t.created.Add(t.most); t.most > 0 && t.ends.After(end) {
		t.ends = end
		a.warnings = []string{fmt.Sprintf("TTL of %q exceeded the effective max_ttl of %q; TTL value is capped accordingly", short(more), short(t.most))}
	}
	return a
}

// short is a time as Vault writes it: without what is zero at its end.
func short(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if whole, cut := strings.CutSuffix(text, zero); cut {
			text = whole + zero[:1]
		}
	}
	return text
}
