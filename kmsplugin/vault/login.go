package vault

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// A login is one way to get a token.
type login struct {
	begin func(context.Context, *client) (token, error)
	files []file // that it reads each time
}

// file is one that holds a secret.
type file struct{ what, path string }

// A token is what a session calls with.
type token struct {
	*secret
	lease
	// own is whether the login made it for this plugin alone. revocable is whether the
	// plugin ends it then; one of the type "batch" ends by its time alone.
	own, revocable bool
}

// A lease is for how long a token is good, and whether it can be made longer.
type lease struct {
	ttl       time.Duration // 0 is for ever
	renewable bool
}

// login is that of the one method which is given.
func (c Config) login() login {
	a := c.Auth
	switch {
	case a.AppRole != nil:
		return c.appRole(*a.AppRole)
	case a.Kubernetes != nil:
		return c.jwt(a.Kubernetes.Mount, a.Kubernetes.Role, file{"service account token", a.Kubernetes.TokenFile})
	case a.JWT != nil:
		return c.jwt(a.JWT.Mount, a.JWT.Role, file{"JWT", a.JWT.TokenFile})
	case a.Cert != nil:
		return login{begin: func(ctx context.Context, asks *client) (token, error) {
			return c.post(ctx, asks, a.Cert.Mount, map[string]string{"name": a.Cert.Name})
		}}
	}
	return c.tokenFile(file{"token", a.TokenFile})
}

func (c Config) tokenFile(f file) login {
	return login{files: []file{f}, begin: func(ctx context.Context, asks *client) (token, error) {
		s, err := readSecret(f.what, f.path)
		if err != nil {
			return token{}, err
		}
		l, err := c.lookUp(ctx, asks, s)
		if errors.Is(err, kmsplugin.ErrDenied) {
			err = fmt.Errorf("the token in %s has ended, was revoked, or may not look itself up: write a new one there: %w", f.path, err)
		}
		return token{secret: s, lease: l}, err
	}}
}

// lookUp asks what a token is good for.
func (c Config) lookUp(ctx context.Context, asks *client, s *secret) (lease, error) {
	var answer struct {
		Data struct {
			TTL       int64 `json:"ttl"`
			Renewable bool  `json:"renewable"`
		} `json:"data"`
	}
	err := asks.ask(ctx, request{method: http.MethodGet, path: "auth/token/lookup-self", namespace: c.AuthNamespace, token: s, safe: true}, &answer)
	return lease{time.Duration(answer.Data.TTL) * time.Second, answer.Data.Renewable}, err
}

func (c Config) jwt(mount, role string, f file) login {
	return login{files: []file{f}, begin: func(ctx context.Context, asks *client) (token, error) {
		s, err := readSecret(f.what, f.path)
		if err != nil {
			return token{}, err
		}
		return c.post(ctx, asks, mount, map[string]string{"role": role, "jwt": s.text}, s)
	}}
}

func (c Config) appRole(a AppRole) login {
	files := []file{{"secret-id", a.SecretIDFile}}
	if a.RoleIDFile != "" {
		files = append(files, file{"role-id", a.RoleIDFile})
	}
	wrapped, wrong := &unwrapped{}, &refused{}
	return login{files: files, begin: func(ctx context.Context, asks *client) (token, error) {
		secretID, err := readSecret(files[0].what, files[0].path)
		if err == nil && a.Wrapped {
			secretID, err = wrapped.open(ctx, c, asks, a, secretID)
		}
		if err != nil {
			return token{}, err
		}
		roleID := newSecret(a.RoleID)
		if a.RoleIDFile != "" {
			if roleID, err = readSecret("role-id", a.RoleIDFile); err != nil {
				return token{}, err
			}
		}
		of := sha256.Sum256([]byte(roleID.text + " " + secretID.text))
		return wrong.login(c.Clock, of, func() (token, error) {
			return c.post(ctx, asks, a.Mount, map[string]string{"role_id": roleID.text, "secret_id": secretID.text}, secretID)
		})
	}}
}

// authAnswer is that of a login and of a renewal.
type authAnswer struct {
	Auth *struct {
		Token     string `json:"client_token"`
		TTL       int64  `json:"lease_duration"`
		Renewable bool   `json:"renewable"`
		Type      string `json:"token_type"`
	} `json:"auth"`
}

func (a authAnswer) lease() lease {
	return lease{time.Duration(a.Auth.TTL) * time.Second, a.Auth.Renewable}
}

// post logs in at a mount. It is asked once alone: each login makes a token, and may use up a
// secret-id.
func (c Config) post(ctx context.Context, asks *client, mount string, body map[string]string, hide ...*secret) (token, error) {
	var answer authAnswer
	path := "auth/" + mount + "/login"
	err := asks.ask(ctx, request{method: http.MethodPost, path: path, namespace: c.AuthNamespace, body: body, hide: hide, refused: kmsplugin.ErrDenied}, &answer)
	switch {
	case err != nil:
		return token{}, err
	case answer.Auth == nil || answer.Auth.Token == "":
		return token{}, fmt.Errorf("vault at %s: POST %s: %w: the login gives no token: does the role ask for a second factor?", asks.base, path, kmsplugin.ErrDenied)
	}
	return token{secret: newSecret(answer.Auth.Token), lease: answer.lease(), own: true, revocable: answer.Auth.Type != "batch"}, nil
}

// unwrapped keeps a secret-id that came out of a wrapping token, which gives it once alone.
type unwrapped struct {
	mu       sync.Mutex
	of       [sha256.Size]byte
	secretID *secret
}

// open unwraps, unless that was done before.
func (u *unwrapped) open(ctx context.Context, c Config, asks *client, a AppRole, wrapping *secret) (*secret, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := sha256.Sum256([]byte(wrapping.text))
	if u.secretID != nil && u.of == of {
		return u.secretID, nil
	}
	if err := c.checkOrigin(ctx, asks, a, wrapping); err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			SecretID string `json:"secret_id"`
		} `json:"data"`
	}
	err := asks.ask(ctx, request{method: http.MethodPost, path: "sys/wrapping/unwrap", namespace: c.AuthNamespace, token: wrapping, refused: kmsplugin.ErrDenied}, &answer)
	if err != nil {
		return nil, usedUp(err, a)
	}
	if answer.Data.SecretID == "" {
		return nil, fmt.Errorf("%w: what the wrapping token in %s wraps is no secret-id: make one with \"vault write -wrap-ttl=10m -f auth/%s/role/ROLE/secret-id\"", kmsplugin.ErrDenied, a.SecretIDFile, a.Mount)
	}
	u.of, u.secretID = of, newSecret(answer.Data.SecretID)
	return u.secretID, nil
}

// checkOrigin refuses a token that wraps anything but a secret-id of this AppRole: whoever took
// the secret-id out could wrap another thing in its place.
func (c Config) checkOrigin(ctx context.Context, asks *client, a AppRole, wrapping *secret) error {
	var answer struct {
		Data struct {
			Path string `json:"creation_path"`
		} `json:"data"`
	}
	err := asks.ask(ctx, request{
		method: http.MethodPost, path: "sys/wrapping/lookup", namespace: c.AuthNamespace, safe: true,
		body: map[string]string{"token": wrapping.text}, hide: []*secret{wrapping}, refused: kmsplugin.ErrDenied,
	}, &answer)
	if err != nil {
		return usedUp(err, a)
	}
	within, isRole := strings.CutPrefix(answer.Data.Path, "auth/"+a.Mount+"/role/")
	if role, isSecretID := strings.CutSuffix(within, "secret-id"); !isRole || !isSecretID || !strings.HasSuffix(role, "/") {
		return fmt.Errorf("%w: the wrapping token in %s was made at %.128q, and not by the AppRole at %s: somebody may have taken the secret-id out and put another thing in its place", kmsplugin.ErrDenied, a.SecretIDFile, answer.Data.Path, a.Mount)
	}
	return nil
}

// usedUp says what it means that a wrapping token is refused.
func usedUp(err error, a AppRole) error {
	if !errors.Is(err, kmsplugin.ErrDenied) {
		return err
	}
	return fmt.Errorf("the wrapping token in %s was used before, or has ended: unless this plugin itself used it before a restart, somebody else has the secret-id: destroy that, find out who, and write a new wrapping token: %w", a.SecretIDFile, err)
}
