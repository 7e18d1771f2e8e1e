package bundle

import (
	"net/url"
	"path"
	"strconv"
)

// Place is where a plugin runs.
type Place struct {
	// Socket is the absolute path that it listens on.
	Socket string
	// Files is the absolute path of the folder with its parts, each named by
	// [Part.FileName].
	Files string
}

func (p Place) endpoint() string { return (&url.URL{Scheme: "unix", Path: p.Socket}).String() }

func (p Place) file(part Part, id KeyID) string { return path.Join(p.Files, part.FileName(id)) }

// The data keys that back ends need.
const (
	roleIDKey   = "role-id"
	secretIDKey = "secret-id"
	tokenKey    = "token"
	caBundleKey = "ca-bundle.crt"
	certKey     = "tls.crt"
	certKeyKey  = "tls.key"
	pinKey      = "pin"
)

// Parts are the files that a plugin with these settings needs, each once, in no order
// that means anything.
func (s *Settings) Parts() []Part {
	switch s.Backend() {
	case BackendVault:
		return s.Vault.parts()
	case BackendPKCS11:
		return []Part{{Secret, s.PKCS11.Secret, pinKey}}
	case BackendCommand:
		if s.Command != nil {
			return s.Command.parts()
		}
	}
	return nil
}

func (v *Vault) parts() []Part {
	var all []Part
	if name := v.TLS.CABundle; name != "" {
		all = append(all, Part{ConfigMap, name, caBundleKey})
	}
	if name := v.TLS.Certificate; name != "" {
		all = append(all, Part{Secret, name, certKey}, Part{Secret, name, certKeyKey})
	}
	switch {
	case v.Auth.AppRole != nil:
		name := v.Auth.AppRole.Secret
		all = append(all, Part{Secret, name, roleIDKey}, Part{Secret, name, secretIDKey})
	case v.Auth.Token != nil:
		all = append(all, Part{Secret, v.Auth.Token.Secret, tokenKey})
	}
	return all
}

// arguments are those of atrest-kms-plugin, or of the command.
func (s *Settings) arguments(id KeyID, at Place) []string {
	switch s.Backend() {
	case BackendVault:
		return s.Vault.arguments(id, at)
	case BackendKeyFile:
		return serve("keyfile", at, s.KeyFile.Serving).with("key-file", s.KeyFile.Path).with("pin", s.KeyFile.Pin)
	case BackendTPM:
		return serve("tpm", at, s.TPM.Serving).with("key-file", s.TPM.Path).with("tpm", s.TPM.Device).with("pin", s.TPM.Pin)
	case BackendPKCS11:
		return s.PKCS11.arguments(id, at)
	default:
		return s.Command.arguments(id, at)
	}
}

func (p *PKCS11) arguments(id KeyID, at Place) []string {
	a := serve("pkcs11", at, p.Serving).
		with("module", p.Module).
		with("token", p.Token).
		with("token-serial", p.TokenSerial).
		with("key", p.Key).
		with("pin-file", at.file(Part{Secret, p.Secret, pinKey}, id)).
		when(p.AllowExtractable, "allow-extractable").
		with("pin", p.Pin)
	if p.Sessions > 0 {
		a = a.with("sessions", strconv.Itoa(p.Sessions))
	}
	return a
}

func (v *Vault) arguments(id KeyID, at Place) []string {
	a := serve("vault", at, v.Serving).
		with("vault-address", v.Address).
		when(v.InsecureHTTP, "insecure-http").
		with("vault-namespace", v.Namespace).
		with("vault-auth-namespace", v.AuthNamespace).
		with("vault-key-path", v.KeyPath).
		with("key-version", v.KeyVersion).
		with("auth-mount", v.Auth.Mount)
	if name := v.TLS.CABundle; name != "" {
		a = a.with("tls-ca-file", at.file(Part{ConfigMap, name, caBundleKey}, id))
	}
	a = a.with("tls-sni", v.TLS.ServerName)
	if name := v.TLS.Certificate; name != "" {
		a = a.with("tls-cert-file", at.file(Part{Secret, name, certKey}, id)).
			with("tls-key-file", at.file(Part{Secret, name, certKeyKey}, id))
	}
	return v.Auth.arguments(a, id, at)
}

func (v *VaultAuth) arguments(a flags, id KeyID, at Place) flags {
	switch {
	case v.AppRole != nil:
		return a.with("approle-role-id-file", at.file(Part{Secret, v.AppRole.Secret, roleIDKey}, id)).
			with("approle-secret-id-file", at.file(Part{Secret, v.AppRole.Secret, secretIDKey}, id)).
			when(v.AppRole.Wrapped, "approle-secret-id-wrapped")
	case v.Token != nil:
		return a.with("token-file", at.file(Part{Secret, v.Token.Secret, tokenKey}, id))
	case v.JWT != nil:
		return a.with("jwt-role", v.JWT.Role).with("jwt-file", v.JWT.File)
	case v.Cert != nil:
		return a.when(true, "cert-login").with("cert-role", v.Cert.Role)
	}
	return a
}

// flags are arguments in the making.
type flags []string

func serve(group string, at Place, s Serving) flags {
	return flags{group, "serve"}.with("listen", at.endpoint()).with("poll", s.Poll).with("hold-down", s.HoldDown)
}

// with adds a flag that has a value. It is one argument, so that a value which begins with
// a dash is none itself.
func (f flags) with(name, value string) flags {
	if value == "" {
		return f
	}
	return append(f, "--"+name+"="+value)
}

// when adds a flag that is either there or not.
func (f flags) when(given bool, name string) flags {
	if !given {
		return f
	}
	return append(f, "--"+name)
}
