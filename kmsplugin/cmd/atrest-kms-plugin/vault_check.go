package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/kmsplugin"
)

func newVaultCheck() *cobra.Command {
	var v vaultOptions
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "check --vault-address URL --vault-key-path PATH LOGIN",
		Short: "Log in, list the versions of the key, and wrap and unwrap with it",
		Long: `Log in as "serve" does, list the versions of the key with their key_ids, and wrap
and unwrap something under the one that would be wrapped with. Nothing is changed.
A wrapping token of --approle-secret-id-wrapped is used up.`,
		Args: noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := requireFlags(command, "vault-address", "vault-key-path"); err != nil {
				return err
			}
			transit, err := v.transit(command)
			if err != nil {
				return err
			}
			if timeout <= 0 {
				return usagef("flag --timeout is %s: it has to be over 0", timeout)
			}
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			return ofVault(try(ctx, command, transit, transit.Config().Pin))
		},
	}
	v.addFlags(command)
	command.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long all of it may take")
	return command
}

// try opens a back end, shows its versions, and uses the one that wraps.
func try(ctx context.Context, command *cobra.Command, backend kmsplugin.Backend, pin string) (err error) {
	session, err := backend.Open(ctx)
	if err != nil {
		return err
	}
	// The token of a login is ended even if there is no time left.
	defer func() { err = errors.Join(err, session.Close(context.WithoutCancel(ctx))) }()
	found, err := session.Versions(ctx)
	if err != nil {
		return err
	}
	writes := found.Writes
	if len(found.All) == 0 {
		return errors.New("the key has no version that unwraps, and so none to wrap with: lower min_decryption_version")
	}
	for i, v := range found.All {
		if v.Label == pin {
			writes = i
		}
	}
	if pin != "" && found.All[writes].Label != pin {
		return fmt.Errorf("version %s is to wrap, and the key has none of that number that unwraps", pin)
	}
	table := tabwriter.NewWriter(command.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VERSION\tMADE\tKEY_ID\tUSE")
	for i, v := range found.All {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", v.Label, v.Created.UTC().Format(time.RFC3339), v.KeyID(), map[bool]string{true: "wraps", false: "unwraps"}[i == writes])
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if found.Withheld != nil {
		fmt.Fprintln(command.OutOrStdout(), "there are others:", found.Withheld)
	}
	if err := roundTrip(ctx, session, found.All[writes]); err != nil {
		return err
	}
	_, err = fmt.Fprintln(command.OutOrStdout(), "it wraps and unwraps")
	return err
}

func roundTrip(ctx context.Context, session kmsplugin.Session, v kmsplugin.Version) error {
	dek, aad := make([]byte, 32), []byte(v.KeyID())
	_, _ = rand.Read(dek) // never fails
	ciphertext, used, err := session.Wrap(ctx, v, dek, aad)
	if err != nil {
		return err
	}
	if used.KeyID() != v.KeyID() {
		return fmt.Errorf("%s was asked for, and %s wrapped", v, used)
	}
	got, err := session.Unwrap(ctx, v, ciphertext, aad)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, dek) {
		return errors.New("what was unwrapped is not what was wrapped")
	}
	return nil
}
