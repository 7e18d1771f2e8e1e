//go:build cgo

package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin/pkcs11"
)

func newPKCS11List() *cobra.Command {
	var of tokenOptions
	var output string
	command := &cobra.Command{
		Use:   "list --module PATH --token LABEL --pin-file PATH --key LABEL",
		Short: "List the versions on the token, and what is wrong with them",
		Long: `List the versions on the token, oldest first, and then what is wrong with them.

KEY_ID is what apiservers and "atrest audit" show: the beginning of the SHA-256
of the key_id. As JSON it is whole, and there is the CKA_ID, by which the token's
own tools know the key: they delete it, once "atrest retire" says that nothing
needs it.`,
		Example: `  atrest-kms-plugin pkcs11 list --module /usr/lib/softhsm/libsofthsm2.so --token atrest --pin-file /etc/atrest/pin --key kek`,
		Args:    noPIN,
		RunE: func(command *cobra.Command, _ []string) error {
			token, err := of.token(command)
			if err != nil {
				return err
			}
			write, ok := map[string]func(io.Writer, []pkcs11.KeyInfo) error{"table": printTokenTable, "json": printJSON[pkcs11.KeyInfo]}[output]
			if !ok {
				return usagef("flag --output is %q: table or json", output)
			}
			infos, problem := token.List(command.Context())
			if problem != nil && len(infos) == 0 {
				return ofToken(problem)
			}
			return ofToken(errors.Join(write(command.OutOrStdout(), infos), problem))
		},
	}
	of.addFlags(command)
	command.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return command
}

func printTokenTable(out io.Writer, infos []pkcs11.KeyInfo) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tKEY_ID\tCREATED\tUSE")
	for _, info := range infos {
		use := "reads"
		if info.Writes {
			use = "reads and writes"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", info.ID, hashed.Short(info.Hash), info.Created.Format(time.RFC3339), use)
	}
	return table.Flush()
}
