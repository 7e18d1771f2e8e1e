//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/pkcs11"
)

const pkcs11Help = `A KMS v2 plugin whose keys (KEKs) are on a PKCS#11 token: an HSM, or SoftHSM.

The keys are made on the token and never leave it; the token wraps and unwraps.
All keys of one label are the versions of one KEK, and the newest wraps. Put the
PIN of the token's user into a file that nobody else can read, then, on one node:

  atrest-kms-plugin pkcs11 create --module /usr/lib/softhsm/libsofthsm2.so \
    --token atrest --pin-file /etc/atrest/pin --key kek

and on each node, before the apiserver, as a service that stays:

  atrest-kms-plugin pkcs11 serve --module /usr/lib/softhsm/libsofthsm2.so \
    --token atrest --pin-file /etc/atrest/pin --key kek \
    --listen unix:///run/kmsplugin/pkcs11.sock

Name the socket in the apiserver's --encryption-provider-config. Then rotate now
and again, on one node, while everything runs: each node's plugin sees the new
key, and writes under it. What was written before stays readable under the old
one, which stays on the token.

All nodes need the same keys: one HSM on the network, or several that copy keys
to each other, with CKA_ID and CKA_LABEL. Without the token, or a backup that its
maker's tools made, the data is lost.`

func newPKCS11Group() *cobra.Command {
	return group("pkcs11", "Keys on a PKCS#11 token, an HSM or SoftHSM, which they never leave", pkcs11Help,
		newPKCS11Serve(), newPKCS11Create(), newPKCS11Rotate(), newPKCS11List())
}

// tokenOptions are the flags that every command of the group has.
type tokenOptions struct{ config pkcs11.Config }

func (o *tokenOptions) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.config.Module, "module", "", "path of the PKCS#11 module, from the root on (required)")
	flags.StringVar(&o.config.Token, "token", "", "label of the token (required, or --token-serial)")
	flags.StringVar(&o.config.Serial, "token-serial", "", "serial number of the token, where no other has it")
	flags.StringVar(&o.config.PINFile, "pin-file", "", "file with the PIN of the token's user (required)")
	flags.StringVar(&o.config.Key, "key", "", "label of the keys, CKA_LABEL (required)")
	flags.BoolVar(&o.config.AllowExtractable, "allow-extractable", false, "take keys, too, that can be read from the token, or used without a PIN")
}

// token is the one that the flags name.
func (o tokenOptions) token(command *cobra.Command) (*pkcs11.Token, error) {
	if err := requireFlags(command, "module", "pin-file", "key"); err != nil {
		return nil, err
	}
	if o.config.Token == "" && o.config.Serial == "" {
		return nil, usagef("required and not given: --token or --token-serial")
	}
	token, err := pkcs11.New(o.config)
	return token, ofToken(err)
}

// ofToken gives an error its exit code: what has to be put right, and what is not there.
func ofToken(err error) error {
	switch {
	case errors.Is(err, pkcs11.ErrMistake):
		return usageError{err}
	case errors.Is(err, pkcs11.ErrNoKey):
		return noKeyError{err}
	}
	return err
}

const pkcs11ServeHelp = `Serve KMS v2 on a unix socket until SIGTERM or SIGINT.

The socket's folder must exist, and let nobody else write, nor may those above
it, unless they are sticky as /tmp is. The socket has mode 0600, or 0660 with
--group. One that systemd has bound is taken over.

What is set up wrongly ends the command at the start with exit code 2: a module
or a PIN file that is not there, no token of the label but others, a key of the
label that can be read from the token. A token that is away or a PIN that it
refuses does not: the command serves, tells apiservers so, and is well once that
is over. A PIN that was refused is tried once and not again until the next start,
as tokens lock after some wrong ones: let nothing start this again and again.
One that worked before is tried again, after a minute and then seldomer, when the
token gave an answer that may mean anything and counted nothing.
Write the right one into the file, which each login reads.

With --hold-down a new version wraps only once it is that old: longer than the
HSMs take to copy a key to each other. --pin takes the ID of a version as "list"
shows it; the PIN of the token is never an argument.`

func newPKCS11Serve() *cobra.Command {
	var o serveOptions
	var of tokenOptions
	command := &cobra.Command{
		Use:   "serve --listen unix:///PATH --module PATH --token LABEL --pin-file PATH --key LABEL",
		Short: "Serve KMS v2 on a unix socket until SIGTERM or SIGINT",
		Long:  pkcs11ServeHelp,
		Example: `  atrest-kms-plugin pkcs11 serve --listen unix:///run/kmsplugin/pkcs11.sock --module /usr/lib/softhsm/libsofthsm2.so \
    --token atrest --pin-file /etc/atrest/pin --key kek`,
		Args: noPIN,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := requireFlags(command, "listen"); err != nil {
				return err
			}
			if !isVersionID(o.config.Pin) {
				// It may be the PIN of the token, and is not shown.
				return usagef("flag --pin takes the ID of a version, as \"list\" shows it; if it is the PIN of the token, which is now in the history of the shell, change it, and give it by --pin-file")
			}
			token, err := of.token(command)
			if err != nil {
				return err
			}
			o.config.Concurrency = token.Keeping().Concurrency
			return o.serve(command, token, func(ctx context.Context) ([]any, error) {
				return []any{"module", of.config.Module, "token", of.config.Token, "key", of.config.Key}, firstLook(ctx, token)
			})
		},
	}
	of.addFlags(command)
	o.addFlags(command, kmsplugin.Config{Poll: 10 * time.Second})
	command.Flags().IntVar(&of.config.Sessions, "sessions", 8, "how many calls the token does at once")
	return command
}

// noPIN takes no arguments. One may be the PIN of the token, and is not shown.
func noPIN(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%d unexpected arguments, which are not shown: everything is given by flags; if one is the PIN of the token, which is now in the history of the shell, change it, and give it by --pin-file", len(args))
	}
	return nil
}

// isVersionID reports whether --pin is left away, or may be what it has to be.
func isVersionID(pin string) bool {
	return pin == "" || regexp.MustCompile(`^[0-9]+-[0-9a-f]{8}$`).MatchString(pin)
}

// firstLook is an error if something cannot work until somebody puts it right. An outage is none:
// it may be over soon, and a plugin that ends for a PIN that is refused is started again, which
// tries it again, until the token locks.
func firstLook(ctx context.Context, token *pkcs11.Token) error {
	ctx, cancel := context.WithTimeout(ctx, firstLookFor)
	defer cancel()
	looked := make(chan error, 1)
	go func() { looked <- look(ctx, token) }() // a call of the module may not return
	select {
	case err := <-looked:
		if errors.Is(err, pkcs11.ErrMistake) || errors.Is(err, pkcs11.ErrNoKey) {
			return ofToken(err)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "the token cannot be used yet")
		}
	case <-ctx.Done():
		klog.FromContext(ctx).Info("the token does not answer yet")
	}
	return nil
}

// look does not wait for the end of its session, as of a part of it that takes long to open.
func look(ctx context.Context, token kmsplugin.Backend) error {
	session, err := token.Open(ctx)
	if err != nil {
		return err
	}
	_, err = session.Versions(ctx)
	ended, end := context.WithCancel(ctx)
	end()
	_ = session.Close(ended) // which closes the rest when it is there
	return err
}

// newTokenChange is a command that has the token make a key.
func newTokenChange(change cobra.Command, make func(context.Context, *pkcs11.Token) (pkcs11.KeyInfo, error), done string) *cobra.Command {
	var of tokenOptions
	command := &change
	command.Use += " --module PATH --token LABEL --pin-file PATH --key LABEL"
	command.Example = "  atrest-kms-plugin pkcs11 " + command.Name() + " --module /usr/lib/softhsm/libsofthsm2.so --token atrest --pin-file /etc/atrest/pin --key kek"
	command.Args = noPIN
	command.RunE = func(command *cobra.Command, _ []string) error {
		token, err := of.token(command)
		if err != nil {
			return err
		}
		info, err := make(command.Context(), token)
		if err != nil {
			return ofToken(err)
		}
		fmt.Fprintf(command.ErrOrStderr(), "%s: version %s %s\n", token, info.ID, done)
		_, err = fmt.Fprintln(command.OutOrStdout(), info.KeyID)
		return err
	}
	of.addFlags(command)
	return command
}

func newPKCS11Create() *cobra.Command {
	return newTokenChange(cobra.Command{
		Use: "create", Short: "Have the token make the first key",
		Long: `Have the token make the first key of the label, an AES key of 256 bits that it
never gives away. The key_id goes to standard output, alone.

It is an error if there is a key of the label.`,
	}, func(ctx context.Context, token *pkcs11.Token) (pkcs11.KeyInfo, error) { return token.Create(ctx) },
		"wraps; back the token up now, by its maker's tools, as values will need it")
}

func newPKCS11Rotate() *cobra.Command {
	return newTokenChange(cobra.Command{
		Use: "rotate", Short: "Have the token make another key, while the plugin serves",
		Long: `Have the token make another key of the label, which wraps from then on; all older
ones stay readable. The key_id goes to standard output, alone.

Run it on one node. Plugins that serve notice within two polls, and an apiserver
a minute later. Where HSMs copy keys to each other, serve with --hold-down.`,
	}, func(ctx context.Context, token *pkcs11.Token) (pkcs11.KeyInfo, error) { return token.Rotate(ctx) },
		"wraps from now on; back the token up now, by its maker's tools, as values will need it")
}
