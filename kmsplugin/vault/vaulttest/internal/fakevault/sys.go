package fakevault

import (
	"net/http"
	"strings"
)

// unauthenticated is what of sys/ needs no token, and answers while it is sealed.
var unauthenticated = map[string]func(*Vault, *request) answer{
	"sys/health":      (*Vault).health,
	"sys/seal-status": (*Vault).sealStatus,
	"sys/unseal":      (*Vault).unseal,
}

// version is that of the Vault whose answers are recorded.
const version = "1.21.0"

func (v *Vault) health(*request) answer {
	status, replication := http.StatusOK, "disabled"
	if v.sealed {
		status, replication = http.StatusServiceUnavailable, "unknown"
	}
	all := map[string]any{
		"initialized": true, "sealed": v.sealed, "standby": v.sealed, "performance_standby": false,
		"replication_performance_mode": replication, "replication_dr_mode": replication,
		"server_time_utc": v.now().Unix(), "version": version, "enterprise": false,
		"echo_duration_ms": 0, "clock_skew_ms": 0, "replication_primary_canary_age_ms": 0,
	}
	if !v.sealed {
		all["cluster_name"], all["cluster_id"] = cluster, v.id
	}
	return answer{status: status, whole: all}
}

// cluster is the name of it.
const cluster = "vault-cluster-fake"

func (v *Vault) sealStatus(*request) answer {
	all := map[string]any{
		"type": "shamir", "initialized": true, "sealed": v.sealed, "t": 1, "n": 1, "progress": 0, "nonce": "",
		"version": version, "build_date": "2025-10-21T00:00:00Z", "migration": false, "recovery_seal": false,
	}
	if !v.sealed {
		all["cluster_name"], all["cluster_id"] = cluster, v.id
	}
	return answer{whole: all}
}

func (v *Vault) unseal(q *request) answer {
	switch q.body.text("key") {
	case "":
		return invalid("'key' must be specified in request body as JSON, or 'reset' set to true")
	case v.UnsealKey:
		v.sealed = false
		return v.sealStatus(q)
	}
	return invalid("unable to retrieve stored keys: invalid key: failed to decrypt keys from storage: error decrypting seal wrapped value\nerror decrypting using seal shamir: cipher: message authentication failed")
}

func (v *Vault) sys(q *request) answer {
	rest := strings.TrimPrefix(q.path, "sys/")
	switch {
	case rest == "seal" && q.operation == "update":
		v.sealed = true
		return done()
	case rest == "capabilities-self" && q.operation == "update":
		return v.capable(q)
	}
	for under, handle := range map[string]func(*Vault, *request, string) answer{
		"mounts/":               func(v *Vault, q *request, at string) answer { return v.mount(q, v.secrets, at) },
		"auth/":                 func(v *Vault, q *request, at string) answer { return v.mount(q, v.auths, at) },
		"policies/acl/":         (*Vault).policy,
		"leases/revoke-prefix/": (*Vault).revokeAll,
	} {
		if name, is := strings.CutPrefix(rest, under); is {
			return handle(v, q, name)
		}
	}
	return missing()
}

// revokeAll ends the tokens of a login.
func (v *Vault) revokeAll(_ *request, of string) answer {
	for id, t := range v.tokens {
		if strings.HasPrefix(t.path, of) {
			v.revoke(id)
		}
	}
	return done()
}

// mount mounts or takes away an engine.
func (v *Vault) mount(q *request, mounts map[string]engine, at string) answer {
	at = strings.TrimSuffix(at, "/") + "/"
	switch q.operation {
	case "update":
		create, known := engines[q.body.text("type")]
		if !known {
			return invalid("plugin not found in the catalog: " + q.body.text("type"))
		}
		if mounts[at] != nil {
			return invalid("path is already in use at " + at)
		}
		mounts[at] = create()
	case "delete":
		delete(mounts, at)
	default:
		return unsupported()
	}
	return done()
}

func (v *Vault) policy(q *request, name string) answer {
	switch q.operation {
	case "update":
		p, err := parse(q.body.text("policy"))
		if err != nil {
			return invalid(err.Error())
		}
		v.policies[name] = p
		return done()
	case "read":
		if p, found := v.policies[name]; found {
			return ok(map[string]any{"name": name, "policy": p.text})
		}
		return missing()
	case "delete":
		delete(v.policies, name)
		return done()
	}
	return unsupported()
}

// capable tells what a token may do at paths.
func (v *Vault) capable(q *request) answer {
	data := map[string]any{}
	for _, path := range q.body.list("paths") {
		all := v.capabilities(q.token, path)
		if len(all) == 0 {
			all = []string{"deny"}
		}
		data[path] = all
		data["capabilities"] = all
	}
	return answer{data: data, beside: true}
}

func (v *Vault) lookWrapped(q *request) answer {
	t := v.tokens[q.body.text("token")]
	if t == nil || t.unwraps == nil || t.isOver(v.now()) {
		return invalid("wrapping token is not valid or does not exist")
	}
	return ok(map[string]any{"creation_time": stamp(t.created), "creation_path": t.path, "creation_ttl": seconds(t.ttl)})
}
