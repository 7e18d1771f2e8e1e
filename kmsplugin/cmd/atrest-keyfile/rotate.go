package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// lockTimeout is how long rotate waits for another rotate, which takes
// milliseconds.
const lockTimeout = 10 * time.Second

func newRotate() *cobra.Command {
	var keyFile string
	command := &cobra.Command{
		Use:   "rotate --key-file PATH",
		Short: "Add a key that wraps from now on, while the plugin serves",
		Long: `Add a key that wraps from now on; all older ones stay readable.

Run it as the owner of the file. A plugin that serves from the file notices when
the apiserver next asks for its Status, within a minute. The new key_id goes to
standard output, alone.`,
		Example: `  atrest-keyfile rotate --key-file /var/lib/atrest/kek.json`,
		Args:    noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return rotate(command, keyFile)
		},
	}
	keyFileFlag(command, &keyFile)
	return command
}

func rotate(command *cobra.Command, keyFile string) error {
	if err := requireFlags(command, "key-file"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(command.Context(), lockTimeout)
	defer cancel()
	info, err := keyfile.At(keyFile).Rotate(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(command.ErrOrStderr(), "version %d of %s wraps from now on; copy the file now, as values will need it\n", info.Version, keyFile)
	_, err = fmt.Fprintln(command.OutOrStdout(), info.KeyID)
	return err
}
