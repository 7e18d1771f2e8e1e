package keyfile_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// rotated is a file of two versions, of which the second one writes.
func rotated(t *testing.T) (file *keyfile.File, first, second keyfile.KeyInfo) {
	t.Helper()
	file, first = created(t)
	second, err := file.Rotate(t.Context())
	require.NoError(t, err)
	return file, first, second
}

func requireVersions(t *testing.T, file *keyfile.File, ids ...string) {
	t.Helper()
	infos, err := file.List()
	require.NoError(t, err)
	var got []string
	for _, info := range infos {
		got = append(got, info.ID)
	}
	require.Equal(t, ids, got)
}

func TestADestroyedVersionIsGoneAndThatIsNoTrouble(t *testing.T) {
	file, first, second := rotated(t)
	session, _ := looked(t, file)
	secret := content(t, file)
	gone, err := file.Destroy(t.Context(), first.KeyID)
	require.NoError(t, err)
	require.Equal(t, first.ID, gone.ID)
	requireVersions(t, file, second.ID)
	require.NotEqual(t, secret, content(t, file))
	requireAlone(t, file)
	versions, err := session.Versions(t.Context())
	require.NoError(t, err, "it was meant")
	require.Len(t, versions.All, 1)
	_, err = session.Unwrap(t.Context(), kmsplugin.Version{Kind: "keyfile", Label: first.ID}, []byte("x"), nil)
	require.ErrorIs(t, err, kmsplugin.ErrUnknownKey)

	_, err = file.Destroy(t.Context(), first.ID)
	require.ErrorContains(t, err, "was destroyed")
	third, err := file.Rotate(t.Context())
	require.NoError(t, err)
	_, err = file.Activate(t.Context(), second.ID)
	require.NoError(t, err)
	_, err = file.Activate(t.Context(), first.ID)
	require.ErrorContains(t, err, "was destroyed", "later changes remember it")
	requireVersions(t, file, second.ID, third.ID)
}

func TestWhatWritesIsNotDestroyedNorWhatIsNotNamedInFull(t *testing.T) {
	file, first, second := rotated(t)
	before := content(t, file)
	for id, problem := range map[string]string{
		second.ID: "activate another one first", second.KeyID: "activate another one first",
		first.ID[:20]: "give all of it", "nobody": "none of its 2 versions",
	} {
		_, err := file.Destroy(t.Context(), id)
		require.ErrorContains(t, err, problem)
		require.Equal(t, before, content(t, file))
	}
	_, err := file.Destroy(t.Context(), "")
	require.Error(t, err, "an empty id is no name of the newest")
	require.Equal(t, before, content(t, file))
}

func TestNoOtherFileBringsBackWhatWasDestroyed(t *testing.T) {
	one, first, second := rotated(t)
	two := copyOf(t, one)
	_, err := one.Destroy(t.Context(), first.ID)
	require.NoError(t, err)

	_, err = one.Import(t.Context(), two.Path())
	require.ErrorContains(t, err, "merge it instead or, to have that version back, move this file away first")
	_, err = one.Merge(t.Context(), two.Path())
	require.NoError(t, err)
	requireVersions(t, one, second.ID)
	onTwo := copyOf(t, two)
	_, err = two.Import(t.Context(), one.Path())
	require.NoError(t, err, "it is brought to other nodes as any change is")
	requireVersions(t, two, second.ID)
	_, err = onTwo.Merge(t.Context(), one.Path())
	require.NoError(t, err)
	require.Equal(t, content(t, one), content(t, onTwo))

	backup := keyfile.At(t.TempDir() + "/kek.json")
	_, err = backup.Import(t.Context(), copyOf(t, one).Path())
	require.NoError(t, err)
	requireVersions(t, backup, second.ID)
}

func TestWhatAnotherNodeWritesWithIsNotDestroyedByAMergeOrAnImport(t *testing.T) {
	one, first, _ := rotated(t)
	two := copyOf(t, one)
	_, err := two.Activate(t.Context(), first.ID)
	require.NoError(t, err)
	_, err = one.Destroy(t.Context(), first.ID)
	require.NoError(t, err)
	for name, change := range map[string]func() error{
		"merge":     func() error { _, err := two.Merge(t.Context(), one.Path()); return err },
		"import":    func() error { _, err := two.Import(t.Context(), one.Path()); return err },
		"the other": func() error { _, err := one.Merge(t.Context(), two.Path()); return err },
	} {
		require.ErrorContains(t, change(), "activate another one there first", name)
	}
}

func TestAServedVersionThatIsMissingWithoutHavingBeenDestroyedIsTrouble(t *testing.T) {
	file, _, _ := rotated(t)
	session, _ := looked(t, file)
	other, _ := created(t)
	require.NoError(t, os.WriteFile(file.Path(), content(t, other), 0o600))
	_, err := session.Versions(t.Context())
	require.ErrorContains(t, err, "no longer has version")
}

func TestAKeeperDestroysInTheFile(t *testing.T) {
	file, first, second := rotated(t)
	keeper := well(t, file, patient(keyfile.Config()))
	require.ErrorContains(t, keeper.Destroy(t.Context(), second.KeyID), "announced")
	require.NoError(t, keeper.Destroy(t.Context(), first.KeyID))
	requireVersions(t, file, second.ID)
	require.NoError(t, keeper.Check(t.Context()))
	require.ErrorIs(t, keeper.Destroy(t.Context(), first.KeyID), kmsplugin.ErrUnknownKey)
}
