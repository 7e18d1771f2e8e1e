package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

func newDestroy() *cobra.Command {
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

Other nodes have the key until it is destroyed there too, or this file imported
or merged there. Copies of the file from before have it for ever, and so may the
disk.

Run it as the owner of the file. A plugin that serves from the file goes on
without the key within a second. The key_id goes to standard output, alone.`,
		Example: `  atrest-kms-plugin keyfile list -o json --key-file /var/lib/atrest/kek.json
  atrest-kms-plugin keyfile destroy 0f3a914e21c06c8fd2f2ab64bd7ac9d1 --key-file /var/lib/atrest/kek.json`,
		Args: change{takes: "the KEY_ID, or the ID, in full"}.args,
		RunE: func(command *cobra.Command, args []string) error {
			if err := requireFlags(command, "key-file"); err != nil {
				return err
			}
			file := keyfile.At(path)
			return destruction{path, yes, file.MayDestroy, func(ctx context.Context, id string) (string, string, error) {
				info, err := file.Destroy(ctx, id)
				return info.ID, info.KeyID, err
			}}.run(command, args[0])
		},
	}
	keyFileFlag(command, &path)
	yesFlag(command, &yes)
	return command
}

func yesFlag(command *cobra.Command, yes *bool) {
	command.Flags().BoolVar(yes, "yes", false, "do not ask")
}

// A destruction is that of a version in a file, by its id or its key_id.
type destruction struct {
	path    string
	yes     bool // nobody is asked
	may     func(given string) error
	destroy func(ctx context.Context, given string) (id, keyID string, err error)
}

func (d destruction) run(command *cobra.Command, given string) error {
	if err := d.may(given); err != nil { // nobody is asked for what cannot be
		return err
	}
	if !d.yes {
		if err := confirm(command.InOrStdin(), command.ErrOrStderr(), d.path, given); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(command.Context(), lockTimeout)
	defer cancel()
	id, keyID, err := d.destroy(ctx, given)
	if err != nil {
		return err
	}
	fmt.Fprintf(command.ErrOrStderr(), "%s: version %s was destroyed; destroy it on other nodes too, and in copies of the file\n", d.path, id)
	_, err = fmt.Fprintln(command.OutOrStdout(), keyID)
	return err
}

// confirm asks for an id a second time.
func confirm(in io.Reader, out io.Writer, keyFile, id string) error {
	fmt.Fprintf(out, "%s: all that is stored under version %.64q will be lost for ever, in copies of etcd too.\n\"atrest retire\" tells whether something is. Type it again to destroy it: ", keyFile, id)
	line, err := bufio.NewReader(io.LimitReader(in, 1<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("key file %s: nothing was destroyed: %w", keyFile, err)
	}
	if strings.TrimSpace(line) != id {
		return fmt.Errorf("key file %s: nothing was destroyed: what was typed is not %.64q; to be asked nothing give --yes", keyFile, id)
	}
	return nil
}
