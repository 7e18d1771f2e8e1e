package vaulttest

import (
	"net/http"
	"time"

	"github.com/stretchr/testify/require"
)

// Role is one of a way to log in.
type Role struct {
	Name     string
	Policies []string
	// TTL is how long its tokens live, MaxTTL how long with all renewals; 0 is Vault's own.
	TTL, MaxTTL time.Duration
}

func (r Role) body(more map[string]any) map[string]any {
	body := map[string]any{"token_policies": r.Policies}
	if r.TTL > 0 {
		body["token_ttl"] = r.TTL.String()
	}
	if r.MaxTTL > 0 {
		body["token_max_ttl"] = r.MaxTTL.String()
	}
	for name, value := range more {
		body[name] = value
	}
	return body
}

// Enable has Vault take logins of a kind, as in "approle", at auth/ and a path. It is done
// once.
func (s *Server) Enable(kind, path string) {
	s.t.Helper()
	if !s.enabled[path] {
		s.Write("sys/auth/"+path, map[string]any{"type": kind})
		s.enabled[path] = true
	}
}

// AppRole makes a role at auth/approle and returns its role-id.
func (s *Server) AppRole(role Role) (roleID string) {
	s.t.Helper()
	s.Enable("approle", "approle")
	s.Write("auth/approle/role/"+role.Name, role.body(nil))
	roleID, _ = s.Read("auth/approle/role/" + role.Name + "/role-id")["role_id"].(string)
	require.NotEmpty(s.t, roleID)
	return roleID
}

// SecretID is a new secret-id of a role of AppRole.
func (s *Server) SecretID(role string) string {
	s.t.Helper()
	secret, _ := s.Write("auth/approle/role/"+role+"/secret-id", nil)["secret_id"].(string)
	require.NotEmpty(s.t, secret)
	return secret
}

// WrappedSecretID is a token that a new secret-id can be had for, once.
func (s *Server) WrappedSecretID(role string, ttl time.Duration) string {
	s.t.Helper()
	answer := s.as(http.MethodPost, "auth/approle/role/"+role+"/secret-id", nil, "X-Vault-Wrap-TTL", ttl.String())
	token := answer.in("wrap_info", "token")
	require.NotEmpty(s.t, token)
	return token
}

// DestroySecretID has nobody log in with a secret-id any more; tokens stay.
func (s *Server) DestroySecretID(role, secretID string) {
	s.t.Helper()
	s.Write("auth/approle/role/"+role+"/secret-id/destroy", map[string]any{"secret_id": secretID})
}

// KubernetesRole makes a role at auth/kubernetes for a service account, as in
// "kube-system:plugin".
func (s *Server) KubernetesRole(role Role, account string) {
	s.t.Helper()
	s.Enable("kubernetes", "kubernetes")
	if s.reviewer == nil {
		s.reviewer = startReviewer(s.t)
		s.Write("auth/kubernetes/config", map[string]any{"kubernetes_host": s.reviewer.url, "disable_local_ca_jwt": true})
	}
	namespace, name := cutAccount(account)
	s.Write("auth/kubernetes/role/"+role.Name, role.body(map[string]any{
		"bound_service_account_names": []string{name}, "bound_service_account_namespaces": []string{namespace},
		"alias_name_source": "serviceaccount_name",
	}))
}

// ServiceAccountToken is a token of a service account, as in "kube-system:plugin", until
// [Server.DeleteServiceAccount].
func (s *Server) ServiceAccountToken(account string) string {
	s.t.Helper()
	require.NotNil(s.t, s.reviewer, "KubernetesRole comes first")
	namespace, name := cutAccount(account)
	token := s.issuer.jwt(s.t, "system:serviceaccount:"+account, JWTAudience, time.Now().Add(time.Hour), map[string]any{
		"kubernetes.io": map[string]any{"namespace": namespace, "serviceaccount": map[string]any{"name": name, "uid": "uid-" + account}},
	})
	s.reviewer.add(token, account)
	return token
}

// DeleteServiceAccount has the apiserver know no token of a service account any more.
func (s *Server) DeleteServiceAccount(account string) { s.reviewer.forget(account) }

// JWTAudience is who the tokens of [Server.JWT] are for.
const JWTAudience = "vault"

// JWTRole makes a role at auth/jwt for a subject.
func (s *Server) JWTRole(role Role, subject string) {
	s.t.Helper()
	s.Enable("jwt", "jwt")
	s.Write("auth/jwt/config", map[string]any{"jwt_validation_pubkeys": []string{s.issuer.publicKey(s.t)}})
	s.Write("auth/jwt/role/"+role.Name, role.body(map[string]any{
		"role_type": "jwt", "user_claim": "sub", "bound_subject": subject, "bound_audiences": []string{JWTAudience},
	}))
}

// JWT is a token of a subject for [JWTAudience], valid for an hour.
func (s *Server) JWT(subject string) string {
	s.t.Helper()
	return s.issuer.jwt(s.t, subject, JWTAudience, time.Now().Add(time.Hour), nil)
}

// CertRole makes a role at auth/cert for the certificates of [Server.ClientCertificate].
func (s *Server) CertRole(role Role) {
	s.t.Helper()
	s.Enable("cert", "cert")
	s.Write("auth/cert/certs/"+role.Name, role.body(map[string]any{"certificate": s.issuer.pem(), "display_name": role.Name}))
}

// ClientCertificate makes a certificate for a client, and returns the files that have it and
// its key.
func (s *Server) ClientCertificate(name string) (certFile, keyFile string) {
	s.t.Helper()
	return s.issuer.client(s.t, name)
}
