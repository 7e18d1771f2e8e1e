package keyfile

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
)

func TestAnyProblemFitsIntoStatus(t *testing.T) {
	for _, problem := range []string{
		"short",
		strings.Repeat("x", 10_000),
		strings.Repeat("\U0001F511", 5_000),
		strings.Repeat("\xff", 5_000),
		strings.Repeat("\xff/", 5_000), // a path may hold any byte
	} {
		text := healthz(errors.New(problem))
		require.NotEmpty(t, text)
		require.LessOrEqual(t, len(text), kmsplugin.MaxHealthz)
		require.True(t, utf8.ValidString(text))
	}
	require.Equal(t, "short", healthz(errors.New("short")))
}
