package vaulttest_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
)

// object is a body of a request.
type object = map[string]any

// step is one request. What begins with $ was kept from an answer before.
type step struct {
	name, method, path, token string
	body                      object
	headers                   []string
	keep                      map[string]string // where in the answer, by name
	with                      *vaulttest.Server // for a client with a certificate
	after                     func()
}

// script is all that a plugin and the tests of it ask of Vault, and what can be wrong with it.
func script(t *testing.T, s *vaulttest.Server) []step {
	var all []step
	for _, part := range [][]step{ofKeys(), ofCrypt(), ofVersions(), ofPolicies(), ofTokens(), ofAppRole(), ofKubernetes(s), ofJWT(s), ofCert(s), ofNothing(), ofSeal(s)} {
		all = append(all, part...)
	}
	names := map[string]bool{}
	for _, st := range all {
		require.False(t, names[st.name], "two steps are named %q", st.name)
		names[st.name] = true
	}
	return all
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func post(name, path string, body object) step {
	return step{name: name, method: "POST", path: path, token: "$root", body: body}
}

func get(name, path string) step {
	return step{name: name, method: "GET", path: path, token: "$root"}
}

func as(token string, s step) step { s.token = token; return s }

func keeping(s step, name, of string) step {
	s.keep = map[string]string{name: of}
	return s
}

func ofKeys() []step {
	return []step{
		{name: "no keys yet", method: "LIST", path: "transit/keys", token: "$root"},
		post("a key", "transit/keys/k", object{}),
		post("a key that is there", "transit/keys/k", object{}),
		get("a look at a key", "transit/keys/k"),
		get("a look at no key", "transit/keys/none"),
		post("a key of 128 bits", "transit/keys/small", object{"type": "aes128-gcm96"}),
		post("a key of ChaCha", "transit/keys/chacha", object{"type": "chacha20-poly1305"}),
		post("a key of RSA", "transit/keys/rsa", object{"type": "rsa-2048"}),
		post("a key that signs", "transit/keys/signs", object{"type": "ed25519"}),
		post("a derived key", "transit/keys/derived", object{"derived": true}),
		post("a convergent key", "transit/keys/convergent", object{"derived": true, "convergent_encryption": true}),
		post("a convergent key that is not derived", "transit/keys/wrong", object{"convergent_encryption": true}),
		post("a key of no type", "transit/keys/wrong", object{"type": "rot13"}),
		{name: "the keys", method: "LIST", path: "transit/keys", token: "$root"},
		{name: "a key that may not be deleted", method: "DELETE", path: "transit/keys/small", token: "$root"},
		post("deletion is allowed", "transit/keys/small/config", object{"deletion_allowed": true}),
		{name: "a key is deleted", method: "DELETE", path: "transit/keys/small", token: "$root"},
		{name: "no key is deleted", method: "DELETE", path: "transit/keys/small", token: "$root"},
		post("no key is rotated", "transit/keys/none/rotate", nil),
		post("no key is changed", "transit/keys/none/config", object{"deletion_allowed": true}),
		post("no key is trimmed", "transit/keys/none/trim", object{"min_available_version": 1}),
	}
}

func ofCrypt() []step {
	wrap := object{"plaintext": encoded("dek")}
	return []step{
		keeping(post("encrypt", "transit/encrypt/k", wrap), "$ciphertext", "data.ciphertext"),
		keeping(post("encrypt with data", "transit/encrypt/k", object{"plaintext": encoded("dek"), "associated_data": encoded("id"), "key_version": 1}), "$bound", "data.ciphertext"),
		post("encrypt with a version as a text", "transit/encrypt/k", object{"plaintext": encoded("dek"), "key_version": "1"}),
		post("encrypt with a version to come", "transit/encrypt/k", object{"plaintext": encoded("dek"), "key_version": 2}),
		post("encrypt with a negative version", "transit/encrypt/k", object{"plaintext": encoded("dek"), "key_version": -1}),
		post("encrypt nothing", "transit/encrypt/k", object{}),
		post("encrypt what is empty", "transit/encrypt/k", object{"plaintext": ""}),
		post("encrypt what is not base64", "transit/encrypt/k", object{"plaintext": "!"}),
		post("encrypt with data that is not base64", "transit/encrypt/k", object{"plaintext": encoded("dek"), "associated_data": "!"}),
		post("encrypt with ChaCha", "transit/encrypt/chacha", object{"plaintext": encoded("dek"), "associated_data": encoded("id")}),
		post("encrypt with RSA", "transit/encrypt/rsa", wrap),
		post("encrypt with RSA and data", "transit/encrypt/rsa", object{"plaintext": encoded("dek"), "associated_data": encoded("id")}),
		post("encrypt with a key that signs", "transit/encrypt/signs", wrap),
		post("encrypt with a derived key", "transit/encrypt/derived", wrap),
		post("encrypt makes a key", "transit/encrypt/made", wrap),
		get("encryption is no look", "transit/encrypt/k"),

		post("decrypt", "transit/decrypt/k", object{"ciphertext": "$ciphertext"}),
		post("decrypt with data", "transit/decrypt/k", object{"ciphertext": "$bound", "associated_data": encoded("id")}),
		post("decrypt with other data", "transit/decrypt/k", object{"ciphertext": "$bound", "associated_data": encoded("other")}),
		post("decrypt with no data", "transit/decrypt/k", object{"ciphertext": "$bound"}),
		post("decrypt with another key", "transit/decrypt/made", object{"ciphertext": "$ciphertext"}),
		post("decrypt with no key", "transit/decrypt/none", object{"ciphertext": "$ciphertext"}),
		post("decrypt nothing", "transit/decrypt/k", object{}),
		post("decrypt without a prefix", "transit/decrypt/k", object{"ciphertext": "AAAA"}),
		post("decrypt without a version", "transit/decrypt/k", object{"ciphertext": "vault:v1"}),
		post("decrypt with a version of letters", "transit/decrypt/k", object{"ciphertext": "vault:vx:AAAA"}),
		post("decrypt with a version to come", "transit/decrypt/k", object{"ciphertext": "vault:v9:AAAA"}),
		post("decrypt what is not base64", "transit/decrypt/k", object{"ciphertext": "vault:v1:!"}),
		post("decrypt what is too short", "transit/decrypt/k", object{"ciphertext": "vault:v1:AAAA"}),
		post("decrypt what was never encrypted", "transit/decrypt/k", object{"ciphertext": "vault:v1:" + encoded("0123456789012345678901234567890123456789")}),
	}
}

func ofVersions() []step {
	config := func(name string, body object) step { return post(name, "transit/keys/k/config", body) }
	trim := func(name string, from any) step {
		return post(name, "transit/keys/k/trim", object{"min_available_version": from})
	}
	encrypt := func(name string, version int) step {
		return post(name, "transit/encrypt/k", object{"plaintext": encoded("dek"), "key_version": version})
	}
	return []step{
		post("rotate", "transit/keys/k/rotate", nil),
		post("rotate again", "transit/keys/k/rotate", nil),
		get("a look at three versions", "transit/keys/k"),
		encrypt("encrypt with the latest", 0),
		keeping(encrypt("encrypt with the second", 2), "$second", "data.ciphertext"),
		post("rewrap", "transit/rewrap/k", object{"ciphertext": "$ciphertext"}),
		trim("trim before there is a minimum", 2),
		config("a minimum to decrypt that is too high", object{"min_decryption_version": 9}),
		config("a minimum to decrypt below 0", object{"min_decryption_version": -1}),
		config("a minimum to encrypt that is too high", object{"min_encryption_version": 9}),
		config("a minimum to encrypt", object{"min_encryption_version": 2}),
		encrypt("encrypt below the minimum", 1),
		encrypt("encrypt at the minimum", 2),
		config("a minimum to decrypt above the one to encrypt", object{"min_decryption_version": 3}),
		config("a minimum to decrypt", object{"min_decryption_version": 2}),
		post("decrypt below the minimum", "transit/decrypt/k", object{"ciphertext": "$ciphertext"}),
		post("decrypt at the minimum", "transit/decrypt/k", object{"ciphertext": "$second"}),
		get("a look at a key with minimums", "transit/keys/k"),
		config("a minimum that is lowered", object{"min_decryption_version": 1}),
		get("a look at a key with a lowered minimum", "transit/keys/k"),
		post("decrypt as the minimum is lowered", "transit/decrypt/k", object{"ciphertext": "$ciphertext"}),
		config("the minimum again", object{"min_decryption_version": 2}),
		trim("trim above the minimum", 3),
		trim("trim to nothing", 0),
		trim("trim", 2),
		trim("trim back", 1),
		config("a minimum of what was trimmed", object{"min_decryption_version": 1}),
		get("a look at a trimmed key", "transit/keys/k"),
		config("nothing changes", object{}),
		post("a key with a minimum to decrypt alone", "transit/keys/alone", object{}),
		post("which is rotated", "transit/keys/alone/rotate", nil),
		post("and has it", "transit/keys/alone/config", object{"min_decryption_version": 2}),
		post("encrypt below the minimum to decrypt", "transit/encrypt/alone", object{"plaintext": encoded("dek"), "key_version": 1}),
		post("key material that may be taken out, and a backup", "transit/keys/taken", object{"exportable": true, "allow_plaintext_backup": true}),
	}
}

const mayRead = `path "transit/keys/k" { capabilities = ["read"] }`

const mayWrap = `
path "transit/encrypt/k" { capabilities = ["update"] } # and no key is made
path "transit/encrypt/none" { capabilities = ["update"] }
path "transit/decrypt/+" { capabilities = ["update"] }
path "transit/keys/*" { capabilities = ["deny"] }
`

func ofPolicies() []step {
	return []step{
		post("a policy", "sys/policies/acl/reads", object{"policy": mayRead}),
		post("another policy", "sys/policies/acl/wraps", object{"policy": mayWrap}),
		get("a look at a policy", "sys/policies/acl/reads"),
		get("a look at no policy", "sys/policies/acl/none"),
		keeping(post("a token that reads", "auth/token/create", object{"policies": []string{"reads"}, "ttl": "1h"}), "$reader", "auth.client_token"),
		keeping(post("a token that wraps", "auth/token/create", object{"policies": []string{"wraps"}, "ttl": "1h"}), "$wrapper", "auth.client_token"),
		as("$reader", get("who may read does", "transit/keys/k")),
		as("$reader", get("who may read another key does not", "transit/keys/made")),
		as("$reader", post("who may read does not wrap", "transit/encrypt/k", object{"plaintext": encoded("dek")})),
		as("$wrapper", post("who may wrap does", "transit/encrypt/k", object{"plaintext": encoded("dek")})),
		as("$wrapper", post("who may wrap makes no key", "transit/encrypt/none", object{"plaintext": encoded("dek")})),
		as("$wrapper", get("who is denied does not read", "transit/keys/k")),
		as("$wrapper", post("who is denied does not rotate", "transit/keys/k/rotate", nil)),
		as("$wrapper", post("a segment is any segment", "transit/decrypt/none", object{"ciphertext": "vault:v1:AAAA"})),
		as("$reader", post("what one may do", "sys/capabilities-self", object{"paths": []string{"transit/keys/k"}})),
		as("$reader", post("who has no right to it seals nothing", "sys/seal", nil)),
	}
}

func ofTokens() []step {
	return []step{
		as("$reader", get("a token looks at itself", "auth/token/lookup-self")),
		get("root looks at itself", "auth/token/lookup-self"),
		as("$reader", post("a token renews itself", "auth/token/renew-self", object{})),
		as("$reader", post("a token renews itself for a time", "auth/token/renew-self", object{"increment": "30m"})),
		post("root renews itself", "auth/token/renew-self", object{}),
		keeping(post("a token that is not renewed", "auth/token/create", object{"policies": []string{"reads"}, "ttl": "1h", "renewable": false}), "$short", "auth.client_token"),
		as("$short", get("a token that is not renewed looks at itself", "auth/token/lookup-self")),
		as("$short", post("a token that is not renewed renews itself", "auth/token/renew-self", object{})),
		keeping(post("a token with an end", "auth/token/create", object{"policies": []string{"reads"}, "ttl": "1h", "explicit_max_ttl": "90m"}), "$ending", "auth.client_token"),
		as("$ending", post("a token with an end renews itself", "auth/token/renew-self", object{"increment": "10h"})),
		as("$ending", get("a token with an end looks at itself", "auth/token/lookup-self")),
		keeping(post("a token without the default", "auth/token/create", object{"policies": []string{"reads"}, "no_default_policy": true, "ttl": "1h"}), "$bare", "auth.client_token"),
		as("$bare", get("a token without the default looks at itself", "auth/token/lookup-self")),
		as("$bare", post("a token without the default renews itself", "auth/token/renew-self", object{})),
		as("$bare", get("a token without the default reads", "transit/keys/k")),
		post("root looks at a token", "auth/token/lookup", object{"token": "$reader"}),
		post("root looks at no token", "auth/token/lookup", object{"token": "hvs.none"}),
		post("a token is revoked", "auth/token/revoke", object{"token": "$reader"}),
		as("$reader", get("a revoked token reads", "transit/keys/k")),
		as("$reader", get("a revoked token looks at itself", "auth/token/lookup-self")),
		as("$reader", post("a revoked token renews itself", "auth/token/renew-self", object{})),
		as("$ending", post("a token revokes itself", "auth/token/revoke-self", nil)),
		as("$ending", get("a token that revoked itself reads", "transit/keys/k")),
		as("hvs.none", get("a wrong token reads", "transit/keys/k")),
		as("", get("nobody reads", "transit/keys/k")),
		as("", post("nobody wraps", "transit/encrypt/k", object{"plaintext": encoded("dek")})),
	}
}

func ofAppRole() []step {
	login := func(name string, body object) step { return as("", post(name, "auth/approle/login", body)) }
	wrapped := func(name, ttl string) step {
		st := post(name, "auth/approle/role/r/secret-id", object{})
		st.headers = []string{"X-Vault-Wrap-TTL", ttl}
		return st
	}
	wrapping := func(st step) step {
		st.headers = []string{"X-Vault-Wrap-TTL", "10m"}
		return st
	}
	return []step{
		as("", post("a login where there is none", "auth/approle/login", object{"role_id": "x", "secret_id": "y"})),
		post("AppRole", "sys/auth/approle", object{"type": "approle"}),
		post("AppRole twice", "sys/auth/approle", object{"type": "approle"}),
		post("a role of AppRole", "auth/approle/role/r", object{"token_policies": []string{"reads"}, "token_ttl": "20m", "token_max_ttl": "1h"}),
		keeping(get("a role-id", "auth/approle/role/r/role-id"), "$role", "data.role_id"),
		get("no role-id", "auth/approle/role/none/role-id"),
		post("a role-id is set", "auth/approle/role/r/role-id", object{"role_id": "an-id-of-ours"}),
		keeping(get("the role-id that was set", "auth/approle/role/r/role-id"), "$role", "data.role_id"),
		keeping(post("a secret-id", "auth/approle/role/r/secret-id", object{}), "$secret", "data.secret_id"),
		post("a secret-id of no role", "auth/approle/role/none/secret-id", object{}),
		keeping(login("a login", object{"role_id": "$role", "secret_id": "$secret"}), "$logged", "auth.client_token"),
		as("$logged", get("who has logged in looks at itself", "auth/token/lookup-self")),
		as("$logged", post("who has logged in renews", "auth/token/renew-self", object{})),
		as("$logged", post("who has logged in renews for longer than it may", "auth/token/renew-self", object{"increment": "10h"})),
		as("$logged", get("who has logged in reads", "transit/keys/k")),
		login("a login with space around it", object{"role_id": " $role\n", "secret_id": "$secret\n"}),
		login("a login with a wrong secret-id", object{"role_id": "$role", "secret_id": "wrong"}),
		login("a login with a wrong role-id", object{"role_id": "wrong", "secret_id": "$secret"}),
		login("a login without a secret-id", object{"role_id": "$role"}),
		login("a login without a role-id", object{"secret_id": "$secret"}),
		post("a secret-id is destroyed", "auth/approle/role/r/secret-id/destroy", object{"secret_id": "$secret"}),
		login("a login with a destroyed secret-id", object{"role_id": "$role", "secret_id": "$secret"}),
		as("$logged", get("the token of a destroyed secret-id", "transit/keys/k")),
		keeping(wrapped("a secret-id is wrapped", "10m"), "$wrapping", "wrap_info.token"),
		as("", post("what is wrapped", "sys/wrapping/lookup", object{"token": "$wrapping"})),
		keeping(as("$wrapping", post("a secret-id is unwrapped", "sys/wrapping/unwrap", nil)), "$secret", "data.secret_id"),
		as("$wrapping", post("a secret-id is unwrapped again", "sys/wrapping/unwrap", nil)),
		as("", post("what was unwrapped", "sys/wrapping/lookup", object{"token": "$wrapping"})),
		as("hvs.none", post("nothing is unwrapped", "sys/wrapping/unwrap", nil)),
		as("", post("nobody unwraps", "sys/wrapping/unwrap", nil)),
		as("", post("nothing is looked at", "sys/wrapping/lookup", object{"token": "hvs.none"})),
		keeping(wrapped("another secret-id is wrapped", "10m"), "$wrapping", "wrap_info.token"),
		as("$wrapping", get("a wrapping token reads", "transit/keys/k")),
		as("$wrapping", post("a secret-id is unwrapped by a token that was used", "sys/wrapping/unwrap", nil)),
		keeping(wrapped("a third secret-id is wrapped", "10m"), "$wrapping", "wrap_info.token"),
		keeping(post("root unwraps what another token wraps", "sys/wrapping/unwrap", object{"token": "$wrapping"}), "$other", "data.secret_id"),
		wrapped("a secret-id is wrapped for no time", "soon"),
		keeping(wrapping(get("a look is wrapped", "transit/keys/rsa")), "$wrapping", "wrap_info.token"),
		as("", post("what a wrapped look is", "sys/wrapping/lookup", object{"token": "$wrapping"})),
		as("$wrapping", post("a look is unwrapped", "sys/wrapping/unwrap", nil)),
		keeping(wrapping(post("a token is wrapped", "auth/token/create", object{"policies": []string{"reads"}, "ttl": "1h"})), "$wrapping", "wrap_info.token"),
		as("$wrapping", post("a token is unwrapped", "sys/wrapping/unwrap", nil)),
		login("a login with what was unwrapped", object{"role_id": "$role", "secret_id": "$secret"}),
		post("a role whose secret-ids are of one use", "auth/approle/role/once", object{"token_policies": "reads", "secret_id_num_uses": 1, "secret_id_ttl": "1h"}),
		keeping(get("the role-id of one use", "auth/approle/role/once/role-id"), "$role", "data.role_id"),
		keeping(post("a secret-id of one use", "auth/approle/role/once/secret-id", object{}), "$secret", "data.secret_id"),
		login("the use", object{"role_id": "$role", "secret_id": "$secret"}),
		login("another use", object{"role_id": "$role", "secret_id": "$secret"}),
		post("a role without the default policy", "auth/approle/role/bare", object{"token_policies": []string{"reads"}, "token_no_default_policy": true}),
		keeping(get("the role-id without the default policy", "auth/approle/role/bare/role-id"), "$role", "data.role_id"),
		keeping(post("a secret-id without the default policy", "auth/approle/role/bare/secret-id", object{}), "$secret", "data.secret_id"),
		keeping(login("a login without the default policy", object{"role_id": "$role", "secret_id": "$secret"}), "$bare", "auth.client_token"),
		as("$bare", get("who logged in without the default policy looks at itself", "auth/token/lookup-self")),
		as("$bare", get("who logged in without the default policy reads", "transit/keys/k")),
		as("$logged", get("who logged in before reads", "transit/keys/k")),
		post("all logins are revoked", "sys/leases/revoke-prefix/auth/approle/login", object{}),
		as("$logged", get("who logged in before they were revoked reads", "transit/keys/k")),
		as("$bare", get("who logged in last before they were revoked reads", "transit/keys/k")),
	}
}

func ofKubernetes(s *vaulttest.Server) []step {
	s.KubernetesRole(vaulttest.Role{Name: "plugin", Policies: []string{"reads"}}, "kube-system:plugin")
	known := s.ServiceAccountToken("kube-system:plugin")
	login := func(name, role, jwt string) step {
		return as("", post(name, "auth/kubernetes/login", object{"role": role, "jwt": jwt}))
	}
	gone := login("a login of a deleted service account", "plugin", known)
	last := login("a login of a service account", "plugin", known)
	last.after = func() { s.DeleteServiceAccount("kube-system:plugin") }
	return []step{
		login("a login of another service account", "plugin", s.ServiceAccountToken("kube-system:other")),
		login("a login of another namespace", "plugin", s.ServiceAccountToken("default:plugin")),
		login("a login of a service account with a wrong role", "none", known),
		login("a login of a service account without a role", "", known),
		login("a login of no service account", "plugin", ""),
		login("a login with what is no JWT", "plugin", "no.jwt"),
		last, gone,
	}
}

func ofJWT(s *vaulttest.Server) []step {
	s.JWTRole(vaulttest.Role{Name: "plugin", Policies: []string{"reads"}}, "plugin")
	known := s.JWT("plugin")
	login := func(name, role, jwt string) step {
		return as("", post(name, "auth/jwt/login", object{"role": role, "jwt": jwt}))
	}
	return []step{
		login("a login with a JWT", "plugin", known),
		login("a login with a JWT of another subject", "plugin", s.JWT("other")),
		login("a login with a JWT and a wrong role", "none", known),
		login("a login with a JWT and no role", "", known),
		login("a login with no JWT", "plugin", ""),
		login("a login with a JWT that was changed", "plugin", known[:len(known)-4]+"AAAA"),
		login("a login with a JWT that is none", "plugin", "no.jwt"),
	}
}

func ofCert(s *vaulttest.Server) []step {
	s.CertRole(vaulttest.Role{Name: "plugin", Policies: []string{"reads"}})
	own := s.With(s.ClientCertificate("plugin"))
	login := func(name string, body object) step { return as("", post(name, "auth/cert/login", body)) }
	with := func(s *vaulttest.Server, st step) step { st.with = s; return st }
	return []step{
		login("a login without a certificate", object{"name": "plugin"}),
		login("a login without a certificate or a name", object{}),
		with(own, login("a login with a certificate", object{"name": "plugin"})),
		with(own, login("a login with a certificate and no name", object{})),
		with(own, login("a login with a certificate of another name", object{"name": "other"})),
	}
}

func ofNothing() []step {
	namespaced := get("a look in a namespace", "transit/keys/k")
	namespaced.headers = []string{"X-Vault-Namespace", "team"}
	bearer := as("", get("a token as a bearer", "transit/keys/rsa"))
	bearer.headers = []string{"Authorization", "Bearer $root"}
	return []step{
		namespaced,
		get("a look in a namespace in the path", "team/transit/keys/k"),
		bearer,
		get("a mount that there is not", "nothing/keys/k"),
		as("hvs.none", get("a mount that there is not, and a wrong token", "nothing/keys/k")),
		get("a path that there is not", "transit/nothing"),
		post("a path of keys that there is not", "transit/keys/k/nothing", nil),
		{name: "a method that there is not", method: "DELETE", path: "transit/encrypt/k", token: "$root"},
		{name: "a method of nothing", method: "PATCH", path: "transit/encrypt/k", token: "$root"},
		post("a mount of nothing", "sys/mounts/other", object{"type": "nothing"}),
		post("a mount that is taken", "sys/mounts/transit", object{"type": "transit"}),
		post("another mount", "sys/mounts/other", object{"type": "transit"}),
		post("a key of another mount", "other/keys/k", object{}),
		get("a look at a key of another mount", "other/keys/k"),
		{name: "another mount ends", method: "DELETE", path: "sys/mounts/other", token: "$root"},
		get("a look at a key of a mount that ended", "other/keys/k"),
	}
}

func ofSeal(s *vaulttest.Server) []step {
	health := func(name string) step { return as("", get(name, "sys/health")) }
	return []step{
		health("health"),
		as("", get("seal status", "sys/seal-status")),
		post("seal", "sys/seal", nil),
		health("health when sealed"),
		as("", get("seal status when sealed", "sys/seal-status")),
		get("a look when sealed", "transit/keys/k"),
		post("encrypt when sealed", "transit/encrypt/k", object{"plaintext": encoded("dek")}),
		as("", post("a login when sealed", "auth/approle/login", object{"role_id": "x", "secret_id": "y"})),
		as("hvs.none", get("a wrong token when sealed", "transit/keys/k")),
		{name: "unseal with no key", method: "POST", path: "sys/unseal", body: object{}},
		{name: "unseal with a wrong key", method: "POST", path: "sys/unseal", body: object{"key": encoded("01234567890123456789012345678901")}, after: s.Unseal},
		get("a look when unsealed", "transit/keys/k"),
	}
}
