package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

func TestRotatePrintsTheNewKeyIDAlone(t *testing.T) {
	path, first := newKeyFile(t)
	got := runCommand(t, "rotate", "--key-file", path)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stderr, "version 2 of "+path+" wraps from now on")

	infos, err := keyfile.At(path).List()
	require.NoError(t, err)
	require.Len(t, infos, 2)
	require.Equal(t, first.KeyID, infos[0].KeyID)
	require.Equal(t, infos[1].KeyID, strings.TrimSuffix(got.stdout, "\n"))
}
