package main

import (
	"context"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// none is a back end without a version that unwraps.
type none struct{ kmsplugin.Session }

func (none) Open(context.Context) (kmsplugin.Session, error) { return none{}, nil }
func (none) Close(context.Context) error                     { return nil }
func (none) Versions(context.Context) (kmsplugin.Versions, error) {
	return kmsplugin.Versions{Writes: -1}, nil
}

func TestVaultCheckOfAKeyThatUnwrapsNothingSaysSo(t *testing.T) {
	for _, pin := range []string{"", "3"} {
		require.ErrorContains(t, try(t.Context(), &cobra.Command{}, none{}, pin), "the key has no version that unwraps")
	}
}
