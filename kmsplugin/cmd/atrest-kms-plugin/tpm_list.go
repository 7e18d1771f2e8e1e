package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
)

func newTPMList() *cobra.Command {
	var path, output string
	command := &cobra.Command{
		Use:   "list --key-file PATH",
		Short: "List the versions in the file, never the keys",
		Long: `List the versions in the file, oldest first; never the keys. The TPM is not asked.

KEY_ID is what apiservers and "atrest audit" show: the beginning of the SHA-256
of the key_id. As JSON it is whole. What was destroyed, here or in a copy that
was recovered with --remove-destroyed, comes last: no copy brings it back.`,
		Example: `  atrest-kms-plugin tpm list --key-file /var/lib/atrest/tpm.json
  atrest-kms-plugin tpm list --key-file /var/lib/atrest/tpm.json -o json`,
		Args: noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := requireFlags(command, "key-file"); err != nil {
				return err
			}
			write, ok := map[string]func(io.Writer, tpmFile) error{"table": printTPMTable, "json": printTPMJSON}[output]
			if !ok {
				return usagef("flag --output is %q: table or json", output)
			}
			store, err := tpm.New(tpm.Config{File: path})
			if err != nil {
				return usageError{err}
			}
			infos, err := store.List()
			if err != nil {
				return err
			}
			gone, err := store.Destroyed()
			if err != nil {
				return err
			}
			return write(command.OutOrStdout(), tpmFile{infos, gone})
		},
	}
	keyFileFlag(command, &path)
	command.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return command
}

func printTPMJSON(out io.Writer, file tpmFile) error {
	return indented(out, struct {
		Keys      []tpm.KeyInfo `json:"keys"`
		Destroyed []string      `json:"destroyed,omitempty"`
	}{file.keys, file.destroyed})
}

func printTPMTable(out io.Writer, file tpmFile) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tKEY_ID\tCREATED\tPCRS\tRECOVERY\tUSE")
	for _, info := range file.keys {
		recovery, use := "no", "reads"
		if info.Recovery {
			recovery = "yes"
		}
		if info.Writes {
			use = "reads and writes"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", info.ID, hashed.Short(info.Hash), info.Created.Format(time.RFC3339), cmp.Or(info.PCRs, "-"), recovery, use)
	}
	for _, id := range file.destroyed {
		fmt.Fprintf(table, "%s\t-\t-\t-\t-\tdestroyed\n", id)
	}
	return table.Flush()
}
