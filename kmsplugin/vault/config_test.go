package vault_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/vault"
)

func TestAWrongConfigIsAnErrorWithARemedy(t *testing.T) {
	folder := t.TempDir()
	empty, two, large, huge := filepath.Join(folder, "empty"), filepath.Join(folder, "two"), filepath.Join(folder, "large"), filepath.Join(folder, "huge")
	for path, content := range map[string]string{empty: " \n", two: "hvs.one hvs.two", large: strings.Repeat("x", 65<<10), huge: strings.Repeat("x", 5<<20)} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	token := write(t, "hvs.token")
	for name, test := range map[string]struct {
		change func(*vault.Config)
		want   string
	}{
		"no address":           {func(c *vault.Config) { c.Address = "" }, "give one, such as https://"},
		"no host":              {func(c *vault.Config) { c.Address = "https://" }, "has no host"},
		"no scheme":            {func(c *vault.Config) { c.Address = "vault.example.com:8200" }, "https://HOST:PORT"},
		"another scheme":       {func(c *vault.Config) { c.Address = "unix://vault/sock" }, "https://HOST:PORT"},
		"a path":               {func(c *vault.Config) { c.Address = "https://vault:8200/v1" }, "has a path"},
		"a query":              {func(c *vault.Config) { c.Address = "https://vault:8200?namespace=x" }, "has a query"},
		"no such port":         {func(c *vault.Config) { c.Address = "https://vault:82000" }, "a PORT of 1 to 65535"},
		"port 0":               {func(c *vault.Config) { c.Address = "https://vault:0" }, "a PORT of 1 to 65535"},
		"user info":            {func(c *vault.Config) { c.Address = "https://me:sesame@vault:8200" }, "how to log in is given apart"},
		"http":                 {func(c *vault.Config) { c.Address = "http://vault:8200" }, "give https, or allow insecure HTTP"},
		"TLS with http":        {func(c *vault.Config) { c.Address, c.InsecureHTTP, c.TLS.CAFile = "http://vault:8200", true, token }, "give https"},
		"no mount":             {func(c *vault.Config) { c.Mount = "" }, "vault secrets list"},
		"a mount that climbs":  {func(c *vault.Config) { c.Mount = "transit/../sys" }, "no path of Vault"},
		"a mount with a query": {func(c *vault.Config) { c.Mount = "transit?x" }, "no path of Vault"},
		"no key":               {func(c *vault.Config) { c.Key = "" }, "no name of a Transit key"},
		"a key with a slash":   {func(c *vault.Config) { c.Key = "keys/k" }, "no slash"},
		"a namespace":          {func(c *vault.Config) { c.Namespace = "a//b" }, "no path of Vault"},
		"version 0":            {func(c *vault.Config) { c.KeyVersion = "0" }, "1 or higher"},
		"version v1":           {func(c *vault.Config) { c.KeyVersion = "v1" }, "1 or higher"},
		"no login":             {func(c *vault.Config) { c.Auth = vault.Auth{} }, "0 ways to log in"},
		"two logins":           {func(c *vault.Config) { c.Auth.Cert = &vault.Cert{} }, "2 ways to log in"},
		"no role-id":           {func(c *vault.Config) { c.Auth = vault.Auth{AppRole: &vault.AppRole{SecretIDFile: token}} }, "role-id"},
		"two role-ids": {func(c *vault.Config) {
			c.Auth = vault.Auth{AppRole: &vault.AppRole{RoleID: "r", RoleIDFile: token, SecretIDFile: token}}
		}, "not both"},
		"no secret-id":       {func(c *vault.Config) { c.Auth = vault.Auth{AppRole: &vault.AppRole{RoleID: "r"}} }, "secret-id file"},
		"no Kubernetes role": {func(c *vault.Config) { c.Auth = vault.Auth{Kubernetes: &vault.Kubernetes{TokenFile: token}} }, "needs a role"},
		"no pod":             {func(c *vault.Config) { c.Auth = vault.Auth{Kubernetes: &vault.Kubernetes{Role: "r"}} }, "/var/run/secrets"},
		"no JWT":             {func(c *vault.Config) { c.Auth = vault.Auth{JWT: &vault.JWT{Role: "r"}} }, "needs a token file"},
		"no certificate":     {func(c *vault.Config) { c.Auth = vault.Auth{Cert: &vault.Cert{}} }, "needs the files"},
		"half a certificate": {func(c *vault.Config) { c.TLS.CertFile = token }, "go together"},
		"no PEM":             {func(c *vault.Config) { c.TLS.CertFile, c.TLS.KeyFile = token, token }, token},
		"no CA":              {func(c *vault.Config) { c.TLS.CAFile = token }, "no certificate in PEM"},
		"a huge CA":          {func(c *vault.Config) { c.TLS.CAFile = huge }, "another file"},
		"a missing CA":       {func(c *vault.Config) { c.TLS.CAFile = folder + "/none" }, "put it there"},
		"a missing file":     {func(c *vault.Config) { c.Auth.TokenFile = folder + "/none" }, "put it there, and let the user of this process read it"},
		"a folder":           {func(c *vault.Config) { c.Auth.TokenFile = folder }, "is no file"},
		"an empty file":      {func(c *vault.Config) { c.Auth.TokenFile = empty }, "write it again"},
		"two tokens":         {func(c *vault.Config) { c.Auth.TokenFile = two }, "nothing else"},
		"a large file":       {func(c *vault.Config) { c.Auth.TokenFile = large }, "another file"},
	} {
		t.Run(name, func(t *testing.T) {
			c := vault.Config{Address: "https://vault.example.com:8200", Mount: "transit", Key: "k", Auth: vault.Auth{TokenFile: token}}
			_, err := vault.New(c)
			require.NoError(t, err)
			test.change(&c)
			_, err = vault.New(c)
			require.ErrorContains(t, err, test.want)
			for _, secret := range []string{"hvs.", "sesame"} {
				require.NotContains(t, err.Error(), secret)
			}
		})
	}
}

// Some have all CAs of the system in one file, and add that of Vault.
func TestAFileOfManyCAsIsTaken(t *testing.T) {
	p := newPlace(t)
	p.config.TLS.CAFile = write(t, strings.Repeat(read(t, p.CA)+"\n", (300<<10)/len(read(t, p.CA))))
	requireWorks(t, open(t, p.transit(t)))
}

func TestEachFileOfALoginIsWatched(t *testing.T) {
	p := newPlace(t)
	cert, key := p.ClientCertificate("plugin")
	p.config.TLS.CertFile, p.config.TLS.KeyFile = cert, key
	secretID, roleID := write(t, "s"), write(t, "r")
	p.config.Auth = vault.Auth{AppRole: &vault.AppRole{RoleIDFile: roleID, SecretIDFile: secretID}}
	require.ElementsMatch(t, []string{secretID, roleID, p.CA, cert, key}, p.transit(t).Config().Credentials)
	for _, auth := range []vault.Auth{
		{TokenFile: secretID}, {Kubernetes: &vault.Kubernetes{Role: "r", TokenFile: secretID}}, {JWT: &vault.JWT{Role: "r", TokenFile: secretID}},
		{AppRole: &vault.AppRole{RoleID: "r", SecretIDFile: secretID, Wrapped: true}},
	} {
		p.config.Auth = auth
		require.ElementsMatch(t, []string{secretID, p.CA, cert, key}, p.transit(t).Config().Credentials)
	}
	p.config.Auth = vault.Auth{Cert: &vault.Cert{}}
	require.ElementsMatch(t, []string{p.CA, cert, key}, p.transit(t).Config().Credentials)
}
