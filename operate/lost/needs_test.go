package lost_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/lost"
)

func counted(revision int64, forms ...audit.Count) *audit.Report {
	r := &audit.Report{Revision: revision, Everywhere: true, Resources: []audit.Resource{{Name: "secrets", Forms: forms}}}
	for _, c := range forms {
		r.Objects += c.Objects
	}
	return r
}

func of(form audit.Form, objects int64) audit.Count { return audit.Count{Form: form, Objects: objects} }

func TestWhichBackupNeedsWhichKey(t *testing.T) {
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	old, vault := audit.Form{Kind: "aescbc", Name: "old"}, audit.Form{Kind: "kms v2", Name: "vault", KeyIDHash: "sha256:a"}
	vaultSeed := vault
	vaultSeed.DEKSource = audit.Seed
	n := lost.NeedsOf([]lost.Backup{
		{Name: "late.db", Time: day.Add(2 * time.Hour), Report: counted(9, of(vault, 2), of(vaultSeed, 3))},
		{Name: "early.db", Time: day.Add(time.Hour), Report: counted(5, of(old, 4), of(vault, 1), of(audit.Form{Kind: audit.Plaintext}, 7))},
	})
	require.Empty(t, n.Problems)
	require.Equal(t, []string{"late.db", "early.db"}, []string{n.Backups[0].Backup, n.Backups[1].Backup}, "in their order")
	require.Equal(t, []lost.Need{{Key: lost.Key{Kind: "kms v2", Name: "vault", KeyIDHash: "sha256:a"}, Objects: 5}}, n.Backups[0].Keys)
	require.Equal(t, int64(7), n.Backups[1].Plaintext)
	require.Equal(t, []lost.KeyNeeds{
		{Key: lost.Key{Kind: "aescbc", Name: "old"}, Backups: []string{"early.db"}, Objects: 4, Latest: day.Add(time.Hour)},
		{Key: lost.Key{Kind: "kms v2", Name: "vault", KeyIDHash: "sha256:a"}, Backups: []string{"late.db", "early.db"}, Objects: 6, Latest: day.Add(2 * time.Hour)},
	}, n.Keys)
}

func TestWhatOfABackupIsNotKnown(t *testing.T) {
	n := lost.NeedsOf([]lost.Backup{
		{Name: "gone.db", Problem: "no such file"},
		{Name: "unseen.db"},
		{Name: "empty.db", Report: &audit.Report{Prefix: "/registry/"}},
		{Name: "odd.db", Report: counted(1, of(audit.Form{Kind: audit.Unknown}, 1), of(audit.Form{Kind: audit.Undecodable, Begins: "aescbc"}, 2))},
	})
	require.Len(t, n.Problems, 4)
	require.Equal(t, "gone.db: no such file", n.Problems[0])
	require.Contains(t, n.Problems[1], "not looked into")
	require.Contains(t, n.Problems[2], "nothing at all is stored")
	require.Contains(t, n.Problems[3], "of 3 of its objects")
	require.Empty(t, n.Keys)
}
