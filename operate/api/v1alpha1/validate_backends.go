package v1alpha1

import (
	"net/url"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	imageName    = regexp.MustCompile(`^(([a-zA-Z0-9-]+[.])+[a-zA-Z0-9-]+|localhost)(:[0-9]{1,5})?(/[a-zA-Z0-9-_.]+)+$`)
	imageDigest  = regexp.MustCompile(`^sha256:[a-f0-9]{64}$`)
	unreserved   = regexp.MustCompile(`^[a-zA-Z0-9._~/-]+$`)
	reserved     = regexp.MustCompile(`^/*(root|sys|audit|auth|cubbyhole|identity)$`)
	vaultKeyPath = regexp.MustCompile(`^[a-zA-Z0-9._~-]+(/[a-zA-Z0-9._~-]+)*/keys/[a-zA-Z0-9_]([a-zA-Z0-9_.-]*[a-zA-Z0-9_])?$`)
	vaultVersion = regexp.MustCompile(`^([1-9][0-9]{0,9})?$`)
	vaultMount   = regexp.MustCompile(`^[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)*$`)
)

func (v *Vault) check(c *checker, at *field.Path) {
	v.KMSPluginImage.check(c, at.Child("kmsPluginImage"))
	if at := at.Child("vaultAddress"); c.required(at, c.text(at, v.VaultAddress, 1, 512)) {
		checkAddress(c, at, v.VaultAddress)
	}
	checkNamespace(c, at, "vaultNamespace", v.VaultNamespace)
	checkNamespace(c, at, "vaultAuthNamespace", v.VaultAuthNamespace)
	if v.TLS != nil {
		v.TLS.check(c, at.Child("tls"))
	}
	if c.required(at.Child("authentication"), v.Authentication != nil) {
		v.Authentication.check(c, at.Child("authentication"))
		c.rule(at, v.Authentication.Type != VaultByCert || v.TLS != nil && v.TLS.Certificate != nil,
			"tls.certificate is required when authentication type is Cert")
	}
	if at := at.Child("vaultKeyPath"); c.required(at, c.text(at, v.VaultKeyPath, 8, 1542)) {
		checkKeyPath(c, at, v.VaultKeyPath)
	}
	c.text(at.Child("keyVersion"), v.KeyVersion, 0, 10)
	c.rule(at.Child("keyVersion"), vaultVersion.MatchString(v.KeyVersion), "keyVersion must be the number of a version, from 1 on")
	v.Serving.check(c, at)
}

func (i Image) check(c *checker, at *field.Path) {
	if !c.text(at, string(i), 75, 447) {
		return
	}
	name, digest, ok := strings.Cut(string(i), "@")
	c.rule(at, ok && imageDigest.MatchString(digest),
		"the OCI Image reference must end with a valid '@sha256:<digest>' suffix, where '<digest>' is 64 characters long")
	c.rule(at, imageName.MatchString(name),
		"the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without the scheme. Short names are not allowed, the registry hostname must be included.")
}

// checkAddress takes for a URL what the function isURL of CEL does.
func checkAddress(c *checker, at *field.Path, address string) {
	u, err := url.ParseRequestURI(address)
	isURL := err == nil
	if isURL {
		u, err = url.Parse(address)
		isURL = err == nil
	}
	c.rule(at, isURL && u.Hostname() != "", "must be a valid URL")
	c.rule(at, isURL && u.Scheme == "https", "must use the 'https' scheme")
	c.rule(at, isURL && (u.EscapedPath() == "" || u.EscapedPath() == "/"), "must not contain a path")
	c.rule(at, isURL && !strings.Contains(address, "?"), "must not have a query")
	c.rule(at, !strings.Contains(address, "#"), "must not have a fragment")
	c.rule(at, !strings.Contains(address, "@"), "must not have user info")
}

func checkNamespace(c *checker, above *field.Path, name, value string) {
	at := above.Child(name)
	if !c.text(at, value, 1, 4096) {
		return
	}
	c.rule(at, !strings.HasSuffix(value, "/"), name+" cannot end with a forward slash")
	c.rule(at, !strings.Contains(value, " "), name+" cannot contain spaces")
	c.rule(at, !reserved.MatchString(value), name+" cannot be a reserved string (root, sys, audit, auth, cubbyhole, identity)")
	c.rule(at, !hasControl(value), name+" cannot contain control characters")
}

func checkKeyPath(c *checker, at *field.Path, path string) {
	c.rule(at, !strings.HasPrefix(path, "/"), "vaultKeyPath cannot start with a forward slash")
	c.rule(at, !strings.HasSuffix(path, "/"), "vaultKeyPath cannot end with a forward slash")
	c.rule(at, !strings.Contains(path, "//"), "vaultKeyPath cannot contain consecutive forward slashes")
	c.rule(at, unreserved.MatchString(path),
		"vaultKeyPath must only contain RFC 3986 unreserved characters (alphanumeric, hyphen, period, underscore, tilde) and forward slashes")
	c.rule(at, !dots.MatchString(path), "vaultKeyPath must not contain '.' or '..' path segments")
	c.rule(at, vaultKeyPath.MatchString(path),
		"vaultKeyPath must follow the format <mount>/keys/<key-name> where the key name starts and ends with an alphanumeric character or underscore and may contain alphanumeric characters, underscores, hyphens, and periods")
}

func (t *VaultTLS) check(c *checker, at *field.Path) {
	if *t == (VaultTLS{}) {
		c.misfit(at, "have at least 1 properties")
	}
	if t.CABundle != nil {
		c.name(at.Child("caBundle", "name"), t.CABundle.Name, 175)
	}
	if at := at.Child("serverName"); c.text(at, t.ServerName, 1, 253) {
		c.rule(at, dnsName.MatchString(t.ServerName), notDNS("serverName", "hostname"))
	}
	if t.Certificate != nil {
		t.Certificate.check(c, at.Child("certificate"))
	}
}

func (s *SecretReference) check(c *checker, at *field.Path) {
	if c.required(at, s != nil) {
		c.name(at.Child("name"), s.Name, 182)
	}
}

func (a *VaultAuthentication) check(c *checker, at *field.Path) {
	if c.required(at.Child("type"), a.Type != "") {
		one(c, at.Child("type"), a.Type, VaultByAppRole, VaultByToken, VaultByJWT, VaultByCert)
	}
	union := func(t VaultAuthenticationType, given bool, name string) {
		c.rule(at, (a.Type == t) == given, name+" config is required when authentication type is "+string(t)+", and forbidden otherwise")
	}
	union(VaultByAppRole, a.AppRole != nil, "appRole")
	union(VaultByToken, a.Token != nil, "token")
	union(VaultByJWT, a.JWT != nil, "jwt")
	c.rule(at, a.Type == VaultByCert || a.Cert == nil, "cert config is forbidden when authentication type is not Cert")
	c.rule(at, a.Type != VaultByToken || a.Mount == "", "mount is forbidden when authentication type is Token")
	if at := at.Child("mount"); c.text(at, a.Mount, 1, 256) {
		c.rule(at, vaultMount.MatchString(a.Mount) && !dots.MatchString(a.Mount),
			"mount must be a path of letters, digits, '-', '_' and '.', without a slash at its ends and without '.' or '..' path segments")
	}
	if a.AppRole != nil {
		a.AppRole.Secret.check(c, at.Child("appRole", "secret"))
	}
	if a.Token != nil {
		a.Token.Secret.check(c, at.Child("token", "secret"))
	}
	if a.JWT != nil {
		c.required(at.Child("jwt", "role"), c.label(at.Child("jwt", "role"), a.JWT.Role))
		c.required(at.Child("jwt", "file"), c.file(at.Child("jwt", "file"), a.JWT.File))
	}
	if a.Cert != nil {
		c.label(at.Child("cert", "role"), a.Cert.Role)
	}
}

func (p *PKCS11) check(c *checker, at *field.Path) {
	c.required(at.Child("module"), c.file(at.Child("module"), p.Module))
	token, serial := c.label(at.Child("token"), p.Token), c.label(at.Child("tokenSerial"), p.TokenSerial)
	c.rule(at, token || serial, "at least one of token and tokenSerial must be set")
	c.required(at.Child("key"), c.label(at.Child("key"), p.Key))
	p.Secret.check(c, at.Child("secret"))
	switch {
	case p.Sessions < 0:
		c.misfit(at.Child("sessions"), "be greater than or equal to 0")
	case p.Sessions > 4096:
		c.misfit(at.Child("sessions"), "be less than or equal to 4096")
	}
	c.label(at.Child("pin"), p.Pin)
	p.Serving.check(c, at)
}

func (t *TPM) check(c *checker, at *field.Path) {
	c.required(at.Child("path"), c.file(at.Child("path"), t.Path))
	c.file(at.Child("device"), t.Device)
	c.label(at.Child("pin"), t.Pin)
	t.Serving.check(c, at)
}

func (k *KeyFile) check(c *checker, at *field.Path) {
	c.required(at.Child("path"), c.file(at.Child("path"), k.Path))
	c.label(at.Child("pin"), k.Pin)
	k.Serving.check(c, at)
}

func (s Serving) check(c *checker, at *field.Path) {
	const year = 365 * 24 * time.Hour
	c.duration(at.Child("poll"), s.Poll, "poll must be longer than 0s and at most 8760h, as in 10s",
		func(d time.Duration) bool { return d > 0 && d <= year })
	c.duration(at.Child("holdDown"), s.HoldDown, "holdDown must be at most 8760h, as in 2m",
		func(d time.Duration) bool { return d <= year })
}
