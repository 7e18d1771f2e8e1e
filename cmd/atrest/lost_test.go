package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/lost"
)

// Whatever the names are, the tables fit, and nothing in them steers a terminal.
func TestTheTablesOfWhatIsLostFit(t *testing.T) {
	long := strings.Repeat("long-", 40) + "\x1b[31m"
	a := lost.Decide(&lost.Found{
		Lost: []lost.Object{
			{Key: "a", Resource: "certificatesigningrequests.certificates.k8s.io", Namespace: long, Name: long, Form: audit.Form{Kind: "kms v2", Name: long, KeyIDHash: "sha256:a"}, Reason: lost.UnknownKey},
			{Key: "b", Resource: "leases.coordination.k8s.io", Namespace: "kube-system", Name: long, Form: audit.Form{Kind: "aescbc", Name: long}, Reason: lost.NoKey},
			{Key: "c", Resource: "secrets", Namespace: "shop", Name: "t", Reason: lost.NoKey},
		},
		Copies:  map[string]lost.Copy{"a": {Backup: "/mnt/" + long}, "c": {Facts: lost.Facts{Type: "kubernetes.io/service-account-token"}}},
		Backups: 1,
		Unknown: []lost.Unknown{{Resource: "certificatesigningrequests.certificates.k8s.io", Form: audit.Form{Kind: "kms v2", Name: long, KeyIDHash: "sha256:" + strings.Repeat("a", 64)}, Objects: 123456, Where: long, Why: "away"}},
	})
	var out bytes.Buffer
	require.NoError(t, printLost(&out, a, 10))
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), tableWidth, line)
	}
	require.NotContains(t, out.String(), "\x1b")
	require.Equal(t, 1, strings.Count(out.String(), "make the Secret again"))
}
