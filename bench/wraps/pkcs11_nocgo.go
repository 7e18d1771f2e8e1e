//go:build !cgo

package main

import (
	"context"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// openPKCS11 says what is missing: a PKCS#11 module is a library of C.
func openPKCS11(context.Context, string) (kmsplugin.Backend, kmsplugin.Config, func(), error) {
	return nil, kmsplugin.Config{}, nil, leftOut("this is built without cgo, which a PKCS#11 module needs: set CGO_ENABLED=1 and have a C compiler")
}
