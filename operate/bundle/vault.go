package bundle

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Vault is a key in the Transit engine of HashiCorp Vault or OpenBao.
type Vault struct {
	// Address is https://HOST:PORT; http only with InsecureHTTP.
	Address      string `json:"address"`
	InsecureHTTP bool   `json:"insecureHTTP,omitempty"`
	// Namespace is that of the key, and AuthNamespace of the login, if another.
	Namespace     string `json:"namespace,omitempty"`
	AuthNamespace string `json:"authNamespace,omitempty"`
	// KeyPath is MOUNT/keys/NAME, and KeyVersion the one version to wrap with; empty is
	// the newest.
	KeyPath    string    `json:"keyPath"`
	KeyVersion string    `json:"keyVersion,omitempty"`
	TLS        VaultTLS  `json:"tls,omitzero"`
	Auth       VaultAuth `json:"auth"`
	Serving    `json:",inline"`
}

// VaultTLS is how Vault is known, and the plugin to it.
type VaultTLS struct {
	// CABundle is a ConfigMap with ca-bundle.crt; without it the system's CAs are asked.
	CABundle string `json:"caBundle,omitempty"`
	// ServerName is the name in Vault's certificate, if not the host of the address.
	ServerName string `json:"serverName,omitempty"`
	// Certificate is a Secret with tls.crt and tls.key, the plugin's own.
	Certificate string `json:"certificate,omitempty"`
}

// VaultAuth is how to log in: exactly one of AppRole, Token, JWT and Cert.
type VaultAuth struct {
	// Mount is where the method is, if not at its default.
	Mount string `json:"mount,omitempty"`
	// AppRole is a Secret with role-id and secret-id.
	AppRole *VaultAppRole `json:"appRole,omitempty"`
	// Token is a Secret with token.
	Token *VaultToken `json:"token,omitempty"`
	// JWT is a token that somebody keeps in a file of the node, such as a SPIFFE agent.
	JWT *VaultJWT `json:"jwt,omitempty"`
	// Cert is a login by the certificate in TLS.
	Cert *VaultCert `json:"cert,omitempty"`
}

// VaultAppRole is a login by the role-id and the secret-id in a Secret.
type VaultAppRole struct {
	Secret string `json:"secret"`
	// Wrapped tells that the secret-id is a wrapping token that gives it, once.
	Wrapped bool `json:"wrapped,omitempty"`
}

// VaultToken is a login by the token in a Secret.
type VaultToken struct {
	Secret string `json:"secret"`
}

// VaultJWT is a login by a token in an absolute path on the node.
type VaultJWT struct {
	Role string `json:"role"`
	File string `json:"file"`
}

// VaultCert is a login by certificate. Without a role Vault looks for one that fits.
type VaultCert struct {
	Role string `json:"role,omitempty"`
}

// vaultKeyPath splits at the last "/keys/": a mount may have such a name too.
var vaultKeyPath = regexp.MustCompile(`^[a-zA-Z0-9._~-]+(/[a-zA-Z0-9._~-]+)*/keys/[a-zA-Z0-9_]([a-zA-Z0-9_.-]*[a-zA-Z0-9_])?$`)

var (
	vaultVersion  = regexp.MustCompile(`^[1-9][0-9]{0,9}$`)
	vaultReserved = []string{"root", "sys", "audit", "auth", "cubbyhole", "identity"}
)

func (v *Vault) check(found *problems) {
	v.checkAddress(found)
	checkNamespace(found, "vault.namespace", v.Namespace)
	if v.AuthNamespace != "/" { // the root
		checkNamespace(found, "vault.authNamespace", v.AuthNamespace)
	}
	need(found, "vault.keyPath", v.KeyPath)
	if v.KeyPath != "" && (!vaultKeyPath.MatchString(v.KeyPath) || !plainSegments(v.KeyPath)) {
		found.addf("vault.keyPath %.128q is not MOUNT/keys/NAME, such as transit/keys/kube: names between slashes have letters, digits, '-', '_', '.' and '~', and none is . or ..", v.KeyPath)
	}
	if v.KeyVersion != "" && !vaultVersion.MatchString(v.KeyVersion) {
		found.addf("vault.keyVersion %.32q is no version of a key: give its number, from 1 on", v.KeyVersion)
	}
	v.checkTLS(found)
	v.Auth.check(found)
	if v.Auth.Cert != nil && v.TLS.Certificate == "" {
		found.addf("vault.auth.cert needs vault.tls.certificate, the Secret with the certificate to log in with")
	}
	v.Serving.check(found, "vault")
}

// checkAddress shows nothing of an address that is refused: it may hold a password.
func (v *Vault) checkAddress(found *problems) {
	const form = "vault.address is not https://HOST:PORT and nothing else"
	need(found, "vault.address", v.Address)
	if v.Address == "" {
		return
	}
	u, err := url.Parse(v.Address)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		found.addf("%s: it has no host", form)
	case u.User != nil:
		found.addf("%s: it has user info; how to log in is given in vault.auth", form)
	case u.Path != "" && u.Path != "/":
		found.addf("%s: it has a path", form)
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(v.Address, "#"):
		found.addf("%s: it has a query or a fragment", form)
	case u.Scheme == "http" && !v.InsecureHTTP:
		found.addf("%s: with http the token and the DEKs could be read on the way; set vault.insecureHTTP for an agent on the same host", form)
	case u.Scheme != "https" && u.Scheme != "http":
		found.addf("%s: it has another scheme", form)
	}
}

func checkNamespace(found *problems, field, value string) {
	optional(found, field, value)
	switch {
	case value == "":
	case strings.HasSuffix(value, "/"), strings.HasPrefix(value, "/"):
		found.addf("%s begins or ends with a slash: take it away", field)
	case strings.Contains(value, " "):
		found.addf("%s has a space", field)
	case slices.Contains(vaultReserved, value):
		found.addf("%s is %q, a name that Vault keeps for itself", field, value)
	}
}

func plainSegments(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if name == "." || name == ".." {
			return false
		}
	}
	return true
}

func (v *Vault) checkTLS(found *problems) {
	t := v.TLS
	if t.ServerName != "" && (len(t.ServerName) > maxName || !objectName.MatchString(t.ServerName)) {
		found.addf("vault.tls.serverName %.128q is no DNS name in lower case", t.ServerName)
	}
	if t != (VaultTLS{}) && strings.HasPrefix(v.Address, "http:") {
		found.addf("vault.tls is given, and vault.address has http: give https")
	}
}

func (a *VaultAuth) check(found *problems) {
	given := 0
	for _, is := range []bool{a.AppRole != nil, a.Token != nil, a.JWT != nil, a.Cert != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		found.addf("vault.auth has %d ways to log in: give exactly one of appRole, token, jwt and cert", given)
		return
	}
	optional(found, "vault.auth.mount", a.Mount)
	switch {
	case a.AppRole != nil:
		need(found, "vault.auth.appRole.secret", a.AppRole.Secret)
	case a.Token != nil:
		need(found, "vault.auth.token.secret", a.Token.Secret)
		if a.Mount != "" {
			found.addf("vault.auth.mount is given, and a token has none")
		}
	case a.JWT != nil:
		need(found, "vault.auth.jwt.role", a.JWT.Role)
		needFile(found, "vault.auth.jwt.file", a.JWT.File)
	case a.Cert != nil:
		optional(found, "vault.auth.cert.role", a.Cert.Role)
	}
}
