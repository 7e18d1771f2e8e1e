package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
)

const vaultHelp = `A KMS v2 plugin whose keys (KEKs) are in the Transit engine of HashiCorp Vault,
Community Edition among them, or of OpenBao. They never leave it.

In Vault, once, make a key, a policy that lets use it and nothing else, and a
login, here an AppRole:

  vault secrets enable transit
  vault write -f transit/keys/kube
  atrest-kms-plugin vault policy --vault-key-path transit/keys/kube |
    vault policy write kube-kms -
  vault auth enable approle
  vault write auth/approle/role/kube-kms token_policies=kube-kms token_ttl=1h
  vault read -field=role_id auth/approle/role/kube-kms/role-id
  (umask 077; vault write -f -field=secret_id \
    auth/approle/role/kube-kms/secret-id > /etc/kubernetes/kms/secret-id)

On each control plane node, see whether all of it is right, and start it before
the apiserver, as a service that stays:

  atrest-kms-plugin vault check \
    --vault-address https://vault.example.com:8200 \
    --tls-ca-file /etc/kubernetes/kms/vault-ca.crt \
    --vault-key-path transit/keys/kube \
    --approle-role-id ROLE_ID \
    --approle-secret-id-file /etc/kubernetes/kms/secret-id
  atrest-kms-plugin vault serve --listen unix:///run/kmsplugin/vault.sock ...

with the flags of "check". Name the socket in the apiserver's
--encryption-provider-config, as "atrest-kms-plugin keyfile --help" shows it.

Then rotate now and again, or have Vault do it (auto_rotate_period):

  vault write -f transit/keys/kube/rotate

The plugins notice within seconds, an apiserver within a minute, and writes under
the new version from then on. What it wrote before stays readable. Raise
min_decryption_version only when "atrest retire" says that nothing needs the old
versions: what is below it cannot be read, and after a trim never again.

Exactly one way to log in is given:

  --token-file                                     a token, renewed while it lasts
  --approle-role-id, --approle-secret-id-file      AppRole
  --kubernetes-role [--kubernetes-token-file]      a service account
  --jwt-role, --jwt-file                           a JWT or a SPIFFE JWT-SVID
  --cert-login, --tls-cert-file, --tls-key-file    a TLS certificate

A file that changes is read again, without a restart: write a new secret-id
there, and the plugin logs in with it.`

func newVaultGroup() *cobra.Command {
	return group("vault", "Keys in the Transit engine of HashiCorp Vault or OpenBao", vaultHelp,
		newVaultServe(), newVaultCheck(), newVaultPolicy())
}

// vaultOptions are the flags that say where Vault is and how to log in.
type vaultOptions struct {
	config    vault.Config
	keyPath   string
	authMount string
	appRole   vault.AppRole
	pod       vault.Kubernetes
	jwt       vault.JWT
	cert      vault.Cert
	certLogin bool
}

// addKeyFlags adds those that name the key.
func (o *vaultOptions) addKeyFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.keyPath, "vault-key-path", "", "MOUNT/keys/NAME of the key, such as transit/keys/kube (required)")
	flags.StringVar(&o.config.Namespace, "vault-namespace", "", "namespace of the key; Community Edition has none")
	flags.StringVar(&o.config.AuthNamespace, "vault-auth-namespace", "", "namespace of the login, / for the root; default that of the key")
	flags.StringVar(&o.config.Auth.TokenFile, "token-file", "", "log in with the token in this file")
}

// addFlags adds all of them.
func (o *vaultOptions) addFlags(command *cobra.Command) {
	o.addKeyFlags(command)
	flags := command.Flags()
	flags.StringVar(&o.config.Address, "vault-address", "", "https://HOST:PORT of Vault (required)")
	flags.BoolVar(&o.config.InsecureHTTP, "insecure-http", false, "allow http in --vault-address, for an agent on this host: it shows token and DEKs")
	flags.StringVar(&o.config.KeyVersion, "key-version", "", "the one version to wrap with, such as 3, whichever is newest")
	flags.StringVar(&o.config.TLS.CAFile, "tls-ca-file", "", "PEM file with the CAs of Vault's certificate; default those of the system")
	flags.StringVar(&o.config.TLS.ServerName, "tls-sni", "", "name in Vault's certificate; default the host of --vault-address")
	flags.StringVar(&o.config.TLS.CertFile, "tls-cert-file", "", "PEM file with this plugin's own certificate")
	flags.StringVar(&o.config.TLS.KeyFile, "tls-key-file", "", "PEM file with the key of --tls-cert-file")
	flags.StringVar(&o.authMount, "auth-mount", "", "where the login is mounted; default approle, kubernetes, jwt or cert")
	flags.StringVar(&o.appRole.RoleID, "approle-role-id", "", "log in by AppRole, with this role-id")
	flags.StringVar(&o.appRole.RoleIDFile, "approle-role-id-file", "", "the same, with the role-id in this file")
	flags.StringVar(&o.appRole.SecretIDFile, "approle-secret-id-file", "", "file with the secret-id")
	flags.BoolVar(&o.appRole.Wrapped, "approle-secret-id-wrapped", false, "the file has a wrapping token that gives the secret-id, once")
	flags.StringVar(&o.pod.Role, "kubernetes-role", "", "log in as a service account, with this role")
	flags.StringVar(&o.pod.TokenFile, "kubernetes-token-file", "", "file with its token; default where a pod has it")
	flags.StringVar(&o.jwt.Role, "jwt-role", "", "log in by a JWT, with this role")
	flags.StringVar(&o.jwt.TokenFile, "jwt-file", "", "file with the JWT")
	flags.BoolVar(&o.certLogin, "cert-login", false, "log in with --tls-cert-file")
	flags.StringVar(&o.cert.Name, "cert-role", "", "role of --cert-login; default any that fits")
}

// key is the config with the key in it.
func (o *vaultOptions) key(command *cobra.Command) (vault.Config, error) {
	c := o.config
	if err := requireFlags(command, "vault-key-path"); err != nil {
		return c, err
	}
	at := strings.LastIndex(o.keyPath, "/keys/")
	if at < 0 {
		return c, usagef("flag --vault-key-path: %.128q has no /keys/ between the mount and the name: such as transit/keys/kube", o.keyPath)
	}
	c.Mount, c.Key = o.keyPath[:at], o.keyPath[at+len("/keys/"):]
	return c, nil
}

// transit is the back end that the flags name.
func (o *vaultOptions) transit(command *cobra.Command) (*vault.Transit, error) {
	c, err := o.key(command)
	if err != nil {
		return nil, err
	}
	if o.appRole != (vault.AppRole{}) {
		o.appRole.Mount, c.Auth.AppRole = o.authMount, &o.appRole
	}
	if o.pod != (vault.Kubernetes{}) {
		o.pod.Mount, c.Auth.Kubernetes = o.authMount, &o.pod
	}
	if o.jwt != (vault.JWT{}) {
		o.jwt.Mount, c.Auth.JWT = o.authMount, &o.jwt
	}
	if o.certLogin || o.cert != (vault.Cert{}) {
		o.cert.Mount, c.Auth.Cert = o.authMount, &o.cert
	}
	if a := c.Auth; o.authMount != "" && a.TokenFile != "" && a.AppRole == nil && a.Kubernetes == nil && a.JWT == nil && a.Cert == nil {
		return nil, usagef("flag --auth-mount: a token of --token-file is of no mount: leave one of the two out")
	}
	transit, err := vault.New(c)
	if err != nil {
		return nil, usageError{err}
	}
	return transit, nil
}

func newVaultServe() *cobra.Command {
	var o serveOptions
	var v vaultOptions
	command := &cobra.Command{
		Use:   "serve --listen unix:///PATH --vault-address URL --vault-key-path PATH LOGIN",
		Short: "Serve KMS v2 on a unix socket until SIGTERM or SIGINT",
		Long: `Serve KMS v2 on a unix socket until SIGTERM or SIGINT.

The socket is as that of "keyfile serve". The plugin starts without Vault, and
tells apiservers what is wrong until it is there. What is set up wrongly ends it
at the start with exit code 2: wrong flags, files that are missing or cannot be
read, a key of a type that cannot bind a DEK to its key_id or that derives others,
a namespace that this Vault does not heed.

Vault is asked for the key's versions every --poll. A new one is announced when it
was seen twice, and is as old as --hold-down. One that is older than what was seen
before, as a standby that lags tells it, is never gone back to. With --key-version
one version alone is wrapped with: that is for a rotation with two plugins.

Vault is asked directly, never through a proxy of the environment, and a redirect
is not followed: give the address of a load balancer that finds a node which
answers.`,
		Example: `  atrest-kms-plugin vault serve --listen unix:///run/kmsplugin/vault.sock --vault-address https://vault:8200 \
    --vault-key-path transit/keys/kube --approle-role-id ID --approle-secret-id-file /etc/kubernetes/kms/secret-id`,
		Args: noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := requireFlags(command, "listen", "vault-address", "vault-key-path"); err != nil {
				return err
			}
			if command.Flags().Changed("pin") {
				return usagef("flag --pin: the one version of a key in Vault to wrap with is named by its number: --key-version")
			}
			transit, err := v.transit(command)
			if err != nil {
				return err
			}
			o.config.Credentials, o.config.Pin = transit.Config().Credentials, transit.Config().Pin
			if o.config.Concurrency < 1 {
				return usagef("flag --concurrency is %d: it has to be at least 1", o.config.Concurrency)
			}
			looked := &lookedAt{Backend: transit, credentials: o.config.Credentials, within: firstLookFor}
			err = o.serve(command, looked, func(ctx context.Context) ([]any, error) {
				return []any{"vault", v.config.Address, "key", v.keyPath}, ofVault(looked.first(ctx, vault.ErrMistake))
			})
			return errors.Join(err, looked.close(context.WithoutCancel(command.Context())))
		},
	}
	v.addFlags(command)
	o.addFlags(command, kmsplugin.Config{Poll: 10 * time.Second})
	command.Flags().IntVar(&o.config.Concurrency, "concurrency", 64, "how many calls of Vault may run at once")
	command.Flags().Lookup("pin").Hidden = true // it has a name of its own here
	return command
}

// ofVault gives an error its exit code: what has to be put right.
func ofVault(err error) error {
	if errors.Is(err, vault.ErrMistake) {
		return usageError{err}
	}
	return err
}

func newVaultPolicy() *cobra.Command {
	var v vaultOptions
	command := &cobra.Command{
		Use:   "policy --vault-key-path MOUNT/keys/NAME",
		Short: "Print the policy that lets a plugin use a key, and do nothing else",
		Long: `Print the policy that lets a plugin use a key, and do nothing else, for
"vault policy write NAME -". It is written in the namespace of the login. With
--token-file it is that of a token which somebody else ends.`,
		Example: `  atrest-kms-plugin vault policy --vault-key-path transit/keys/kube | vault policy write kube-kms -`,
		Args:    noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := v.key(command)
			if err != nil {
				return err
			}
			policy, err := vault.Policy(c)
			if err != nil {
				return usageError{err}
			}
			_, err = fmt.Fprint(command.OutOrStdout(), policy)
			return err
		},
	}
	v.addKeyFlags(command)
	return command
}
