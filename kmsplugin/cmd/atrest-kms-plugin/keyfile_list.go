package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

type listOptions struct {
	keyFile string
	output  string
}

func newList() *cobra.Command {
	var o listOptions
	command := &cobra.Command{
		Use:   "list --key-file PATH",
		Short: "List the versions in the key file, never the keys",
		Long: `List the versions in the key file, oldest first; never the keys.

KEY_ID is what apiservers and "atrest audit" show: the beginning of the SHA-256
of the key_id. FORMERLY is that of the key_id that a version had in a file of
format 1: what was wrapped then is stored under it. As JSON both are whole.`,
		Example: `  atrest-kms-plugin keyfile list --key-file /var/lib/atrest/kek.json
  atrest-kms-plugin keyfile list --key-file /var/lib/atrest/kek.json -o json`,
		Args: noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := requireFlags(command, "key-file"); err != nil {
				return err
			}
			return o.run(command.OutOrStdout())
		},
	}
	keyFileFlag(command, &o.keyFile)
	command.Flags().StringVarP(&o.output, "output", "o", "table", "table or json")
	return command
}

func (o listOptions) run(out io.Writer) error {
	write, ok := map[string]func(io.Writer, []keyfile.KeyInfo) error{"table": printTable, "json": printJSON[keyfile.KeyInfo]}[o.output]
	if !ok {
		return usagef("flag --output is %q: table or json", o.output)
	}
	infos, err := keyfile.At(o.keyFile).List()
	if err != nil {
		return err
	}
	return write(out, infos)
}

func printTable(out io.Writer, infos []keyfile.KeyInfo) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tKEY_ID\tFORMERLY\tCREATED\tUSE")
	for _, info := range infos {
		use := "reads"
		if info.Writes {
			use = "reads and writes"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", info.ID, hashed.Short(info.Hash), cmp.Or(hashed.Short(info.FormerHash), "-"), info.Created.Format(time.RFC3339), use)
	}
	return table.Flush()
}

func printJSON[KeyInfo any](out io.Writer, infos []KeyInfo) error {
	return indented(out, struct {
		Keys []KeyInfo `json:"keys"`
	}{infos})
}

// indented prints JSON for people to read, too.
func indented(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
