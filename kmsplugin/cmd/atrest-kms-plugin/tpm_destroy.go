package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/kmsplugin/tpm"
)

func newTPMDestroy() *cobra.Command {
	var path string
	var yes bool
	command := &cobra.Command{
		Use:   "destroy KEY_ID --key-file PATH",
		Short: "Remove a key for ever, with all that is stored under it",
		Long: `Remove a key for ever: whatever is stored under it, in etcd or in a copy of etcd,
is lost. "atrest retire" tells whether something is, and destroys nothing itself.

It asks for the KEY_ID, or the ID, a second time, unless --yes is given; both are
whole in "list -o json". The key that wraps is not destroyed: activate another
one first. Nor should be one that a running plugin still wraps with because of
--pin or --hold-down: look at the key_id in its log.

The TPM is not asked, and has nothing of the key. Copies of the file from before
have it for ever, for this TPM or the recovery key to open, and so may the disk.
Other nodes have it until it is destroyed there too, or a copy of this file is
recovered there.

Run it as the owner of the file. A plugin that serves from the file goes on
without the key within a second. The key_id goes to standard output, alone.`,
		Example: `  atrest-kms-plugin tpm list -o json --key-file /var/lib/atrest/tpm.json
  atrest-kms-plugin tpm destroy 0f3a914e21c06c8fd2f2ab64bd7ac9d1 --key-file /var/lib/atrest/tpm.json`,
		Args: change{takes: "the KEY_ID, or the ID, in full"}.args,
		RunE: func(command *cobra.Command, args []string) error {
			if err := requireFlags(command, "key-file"); err != nil {
				return err
			}
			store, err := tpm.New(tpm.Config{File: path})
			if err != nil {
				return usageError{err}
			}
			return destruction{path, yes, store.MayDestroy, func(ctx context.Context, id string) (string, string, error) {
				info, err := store.Destroy(ctx, id)
				return info.ID, info.KeyID, err
			}}.run(command, args[0])
		},
	}
	keyFileFlag(command, &path)
	yesFlag(command, &yes)
	return command
}
