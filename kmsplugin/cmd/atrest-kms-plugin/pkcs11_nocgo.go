//go:build !cgo

package main

import "github.com/spf13/cobra"

// newPKCS11Group says what is missing: a PKCS#11 module is a library of C.
func newPKCS11Group() *cobra.Command {
	return &cobra.Command{
		Use: "pkcs11", Short: "Keys on a PKCS#11 token: not in this build, which is without cgo",
		Long:               `This command was built without cgo, which a PKCS#11 module needs: build it with CGO_ENABLED=1 and a C compiler.`,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usagef("there is no pkcs11 in this build, which is without cgo: build it with CGO_ENABLED=1 and a C compiler")
		},
	}
}
