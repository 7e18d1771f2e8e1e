package vault

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/utils/clock"
)

// Config is where Vault is, which key it is and how to log in.
type Config struct {
	// Address is that of Vault or of a load balancer before it, as in
	// "https://vault.example.com:8200".
	Address string
	// InsecureHTTP allows http in Address: whoever sees the traffic then has the token and
	// the DEKs. It is for an agent on the same host.
	InsecureHTTP bool
	// Namespace is that of the key, and AuthNamespace that of the login, where it is another
	// one: "/" is the root. Community Vault has none.
	Namespace, AuthNamespace string
	// Mount is where the Transit engine is, as in "transit", and Key the key's name in it.
	Mount, Key string
	// KeyVersion is the one version to wrap with, as in "3"; empty is the newest.
	KeyVersion string
	TLS        TLS
	Auth       Auth
	// Clock is the system's unless a test hands another in.
	Clock clock.Clock
}

// TLS is how Vault is known, and this plugin to it.
type TLS struct {
	// CAFile has the certificates of the CAs, in PEM; by default the system's are asked.
	CAFile string
	// ServerName is the name in Vault's certificate, if it is not the host of the address.
	ServerName string
	// CertFile and KeyFile are this plugin's own certificate and key, in PEM.
	CertFile, KeyFile string
}

// Auth is how to log in: exactly one of its fields. Files are read at each login, and again
// when they change.
type Auth struct {
	// TokenFile has a token, which is renewed as long as it can be.
	TokenFile  string
	AppRole    *AppRole
	Kubernetes *Kubernetes
	JWT        *JWT
	Cert       *Cert
}

// AppRole is a login by role-id and secret-id.
type AppRole struct {
	// Mount is where the method is: "approle".
	Mount string
	// RoleID or the RoleIDFile that has it.
	RoleID, RoleIDFile string
	// SecretIDFile has the secret-id or, if it is Wrapped, a token that unwraps it once.
	SecretIDFile string
	Wrapped      bool
}

// Kubernetes is a login by a token of a service account.
type Kubernetes struct {
	// Mount is where the method is: "kubernetes".
	Mount, Role string
	// TokenFile is by default where a pod has it.
	TokenFile string
}

// JWT is a login by a JSON Web Token, a SPIFFE JWT-SVID among them.
type JWT struct {
	// Mount is where the method is: "jwt".
	Mount, Role, TokenFile string
}

// Cert is a login by the certificate in [TLS].
type Cert struct {
	// Mount is where the method is: "cert".
	Mount string
	// Name is the role; by default Vault looks for one that fits.
	Name string
}

// podToken is where a pod has the token of its service account.
const podToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// checked is a config in one spelling, with all defaults, or what is wrong with it.
func (c Config) checked() (Config, error) {
	var err error
	if c.Address, err = address(c.Address, c.InsecureHTTP); err != nil {
		return c, err
	}
	if c, err = c.checkedKey(); err != nil {
		return c, err
	}
	if n, err := strconv.Atoi(c.KeyVersion); c.KeyVersion != "" && (err != nil || n < 1 || strconv.Itoa(n) != c.KeyVersion) {
		return c, fmt.Errorf("vault: %.64q is no version of a key: name one as \"vault read\" shows it, 1 or higher", c.KeyVersion)
	}
	if c.Auth, err = c.Auth.checked(); err != nil {
		return c, err
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c, c.checkTLS()
}

// checkedKey is a config with what names the key in one spelling.
func (c Config) checkedKey() (_ Config, err error) {
	auth := cmp.Or(c.AuthNamespace, c.Namespace)
	if c.Namespace, err = segments("namespace", strings.Trim(c.Namespace, "/")); err != nil {
		return c, err
	}
	if c.AuthNamespace, err = segments("namespace of the login", strings.Trim(auth, "/")); err != nil {
		return c, err
	}
	if c.Mount, err = mount("mount of the key", c.Mount, ""); err != nil {
		return c, err
	}
	if !keyName.MatchString(c.Key) {
		return c, fmt.Errorf("vault: %.128q is no name of a Transit key: it has letters, digits, \"_\", and \"-\" and \".\" within, and no slash: the mount is given apart", c.Key)
	}
	return c, nil
}

// keyName is what Transit takes for a name.
var keyName = regexp.MustCompile(`^\w([\w.-]*\w)?$`)

// address is scheme, host and port. What it does not allow may hold a password, and is not shown.
func address(text string, insecure bool) (string, error) {
	if text == "" {
		return "", errors.New("vault: no address: give one, such as https://vault.example.com:8200")
	}
	u, err := url.Parse(text)
	const form = "an address is https://HOST:PORT and nothing else"
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return "", fmt.Errorf("vault: the address has no host: %s", form)
	case u.User != nil:
		return "", fmt.Errorf("vault: the address of %s has user info: %s; how to log in is given apart", u.Host, form)
	case strings.Trim(u.Path, "/") != "":
		return "", fmt.Errorf("vault: the address of %s has a path: %s; Vault is asked below /v1, and a namespace is given apart", u.Host, form)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", fmt.Errorf("vault: the address of %s has a query or a fragment: %s", u.Host, form)
	case !isPort(u):
		return "", fmt.Errorf("vault: the address of %s has a port that there is not: %s, with a PORT of 1 to 65535", u.Host, form)
	case u.Scheme == "http" && !insecure:
		return "", fmt.Errorf("vault: the address of %s has http: the token and the DEKs could be read on the way: give https, or allow insecure HTTP for an agent on this host", u.Host)
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("vault: the address of %s has the scheme %.16q: %s", u.Host, u.Scheme, form)
	}
	return u.Scheme + "://" + u.Host, nil
}

// isPort reports whether an address has a port that can be connected to, or none, where that of the
// scheme is meant.
func isPort(u *url.URL) bool {
	if u.Port() == "" {
		return true
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}

func (c Config) checkTLS() error {
	t := c.TLS
	if strings.HasPrefix(c.Address, "http:") && t != (TLS{}) {
		return errors.New("vault: there are options of TLS, and the address has http: give https")
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("vault: a certificate and its key go together: one of the files is not given")
	}
	if c.Auth.Cert != nil && t.CertFile == "" {
		return errors.New("vault: a login by certificate needs the files of the certificate and of its key")
	}
	return nil
}

func (a Auth) checked() (Auth, error) {
	given := 0
	for _, is := range []bool{a.TokenFile != "", a.AppRole != nil, a.Kubernetes != nil, a.JWT != nil, a.Cert != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		return a, fmt.Errorf("vault: %d ways to log in are given: give exactly one of a token file, AppRole, Kubernetes, JWT and certificate", given)
	}
	var err error
	switch {
	case a.AppRole != nil:
		a.AppRole, err = a.AppRole.checked()
	case a.Kubernetes != nil:
		k := *a.Kubernetes
		k.TokenFile = cmp.Or(k.TokenFile, podToken)
		k.Mount, err = mount("mount of the Kubernetes login", k.Mount, "kubernetes")
		a.Kubernetes = &k
		err = cmp.Or(err, required("Kubernetes", "role", k.Role))
	case a.JWT != nil:
		j := *a.JWT
		j.Mount, err = mount("mount of the JWT login", j.Mount, "jwt")
		a.JWT = &j
		err = cmp.Or(err, required("JWT", "role", j.Role), required("JWT", "token file", j.TokenFile))
	case a.Cert != nil:
		c := *a.Cert
		c.Mount, err = mount("mount of the certificate login", c.Mount, "cert")
		a.Cert = &c
	}
	return a, err
}

func (a AppRole) checked() (*AppRole, error) {
	var err error
	if a.Mount, err = mount("mount of the AppRole login", a.Mount, "approle"); err != nil {
		return nil, err
	}
	if (a.RoleID == "") == (a.RoleIDFile == "") {
		return nil, errors.New("vault: AppRole needs a role-id or a file that has it, and not both")
	}
	return &a, required("AppRole", "secret-id file", a.SecretIDFile)
}

func required(login, what, value string) error {
	if value == "" {
		return fmt.Errorf("vault: a login by %s needs a %s", login, what)
	}
	return nil
}

// mount is a path of an engine or of a login.
func mount(what, path, byDefault string) (string, error) {
	path = cmp.Or(strings.Trim(path, "/"), byDefault)
	if path == "" {
		return "", fmt.Errorf("vault: no %s: give it as \"vault secrets list\" shows it, such as transit", what)
	}
	return segments(what, path)
}

// segments are names between slashes that mean in a URL what they say.
func segments(what, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	for _, name := range strings.Split(path, "/") {
		if name == "" || name == "." || name == ".." || !segment.MatchString(name) {
			return "", fmt.Errorf("vault: the %s %.128q is no path of Vault: each name between slashes has letters, digits, \"_\", \"-\" and \".\"", what, path)
		}
	}
	return path, nil
}

var segment = regexp.MustCompile(`^[\w.-]+$`)
