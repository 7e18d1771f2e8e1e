package tpm_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// rotated is a file of two versions, of which the second one writes, and something under the first.
func rotated(t *testing.T, chip *swtpmtest.TPM) (s *tpm.Store, recoveryKey string, first sealed, second tpm.KeyInfo) {
	t.Helper()
	s, recoveryKey = created(t, chip, "")
	first = wrap(t, s)
	second, err := s.Rotate(t.Context())
	require.NoError(t, err)
	return s, recoveryKey, first, second
}

func requireVersions(t *testing.T, s *tpm.Store, ids ...string) {
	t.Helper()
	infos, err := s.List()
	require.NoError(t, err)
	var got []string
	for _, info := range infos {
		got = append(got, info.ID)
	}
	require.Equal(t, ids, got)
}

func content(t *testing.T, s *tpm.Store) []byte {
	t.Helper()
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	return data
}

func TestADestroyedVersionIsGoneAndThatIsNoTrouble(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, _, first, second := rotated(t, chip)
	session, _, err := looked(t, s)
	require.NoError(t, err)
	requireOpens(t, session, first)

	chip.Off() // it is not asked
	gone, err := s.Destroy(t.Context(), first.version.KeyID())
	require.NoError(t, err)
	require.Equal(t, first.version.Label, gone.ID)
	chip.On()
	requireVersions(t, s, second.ID)
	versions, err := session.Versions(t.Context())
	require.NoError(t, err, "it was meant")
	require.Len(t, versions.All, 1)
	_, err = session.Unwrap(t.Context(), first.version, first.ciphertext, []byte(first.version.KeyID()))
	require.ErrorIs(t, err, kmsplugin.ErrUnknownKey, "what was in memory is gone, too")

	// Later changes remember it.
	_, err = s.Destroy(t.Context(), first.version.Label)
	require.ErrorContains(t, err, "was destroyed")
	third, err := s.Rotate(t.Context())
	require.NoError(t, err)
	for _, change := range []func() error{
		func() error { _, err := s.Activate(t.Context(), second.ID); return err },
		func() error { _, _, err := s.Reseal(t.Context(), true); return err },
		func() error { _, err := s.Stage(t.Context()); return err },
	} {
		require.NoError(t, change())
		_, err = s.Activate(t.Context(), first.version.Label)
		require.ErrorContains(t, err, "was destroyed")
	}
	infos, err := s.List()
	require.NoError(t, err)
	require.Len(t, infos, 3)
	require.Equal(t, third.ID, infos[1].ID)
}

func TestWhatWritesIsNotDestroyedNorWhatIsNotNamedInFull(t *testing.T) {
	s, _, first, second := rotated(t, swtpmtest.Start(t))
	before := content(t, s)
	for id, problem := range map[string]string{
		second.ID: "activate another one first", second.KeyID: "activate another one first",
		first.version.Label[:20]: "give all of it", "nobody": "none of its 2 versions",
	} {
		_, err := s.Destroy(t.Context(), id)
		require.ErrorContains(t, err, problem)
		require.Equal(t, before, content(t, s))
	}
	_, err := s.Destroy(t.Context(), "")
	require.Error(t, err, "an empty id is no name of the newest")
	require.Equal(t, before, content(t, s))
}

// A destruction is brought to other nodes as a rotation is, and no older copy undoes it.
func TestNoOtherFileBringsBackWhatWasDestroyed(t *testing.T) {
	chip, other := swtpmtest.Start(t), swtpmtest.Start(t)
	one, recoveryKey, first, second := rotated(t, chip)
	two, old := store(t, other, ""), copied(t, one)
	_, err := two.Recover(t.Context(), recoveryKey, old)
	require.NoError(t, err)
	_, err = one.Destroy(t.Context(), first.version.Label)
	require.NoError(t, err)

	before := content(t, one)
	for _, copy := range []string{old, copied(t, two)} {
		_, err = one.Recover(t.Context(), recoveryKey, copy)
		require.ErrorContains(t, err, "version "+first.version.Label+" was destroyed here")
		require.ErrorContains(t, err, "move this file away")
		require.Equal(t, before, content(t, one))
	}
	before = content(t, two)
	_, err = two.Recover(t.Context(), recoveryKey, copied(t, one))
	require.ErrorContains(t, err, "version "+first.version.Label+" was destroyed in it, and would be removed here for ever")
	require.ErrorContains(t, err, "--remove-destroyed", "who can write a copy says so of any version")
	require.Equal(t, before, content(t, two))
	_, err = configured(t, other, two.Path(), removes).Recover(t.Context(), recoveryKey, copied(t, one))
	require.NoError(t, err)
	requireVersions(t, two, second.ID)
	_, err = two.Activate(t.Context(), first.version.Label)
	require.ErrorContains(t, err, "was destroyed")
	_, err = one.Recover(t.Context(), recoveryKey, "")
	require.NoError(t, err)
	_, err = one.Activate(t.Context(), first.version.Label)
	require.ErrorContains(t, err, "was destroyed")
	_, err = two.Recover(t.Context(), recoveryKey, old)
	require.ErrorContains(t, err, "was destroyed here")
}

func TestWhatAnotherNodeWritesWithIsNotDestroyedByARecovery(t *testing.T) {
	chip, other := swtpmtest.Start(t), swtpmtest.Start(t)
	one, recoveryKey, first, _ := rotated(t, chip)
	two := store(t, other, "")
	_, err := two.Recover(t.Context(), recoveryKey, copied(t, one))
	require.NoError(t, err)
	_, err = two.Activate(t.Context(), first.version.Label)
	require.NoError(t, err)
	_, err = one.Destroy(t.Context(), first.version.Label)
	require.NoError(t, err)
	_, err = configured(t, other, two.Path(), removes).Recover(t.Context(), recoveryKey, copied(t, one))
	require.ErrorContains(t, err, "activate another one there first")
}

func TestAKeeperDestroysInTheFile(t *testing.T) {
	s, _, first, second := rotated(t, swtpmtest.Start(t))
	keeper := plugintest.Keep(t, s, often())
	require.ErrorContains(t, keeper.Destroy(t.Context(), second.KeyID), "announced")
	require.NoError(t, keeper.Destroy(t.Context(), first.version.KeyID()))
	requireVersions(t, s, second.ID)
	require.NoError(t, keeper.Check(t.Context()))
	require.ErrorIs(t, keeper.Destroy(t.Context(), first.version.KeyID()), kmsplugin.ErrUnknownKey)
}

// A file of before the version was made knows nothing of it, and may take the place of one that does.
func TestWhatWasDestroyedIsRememberedInTheFileThatTakesThePlace(t *testing.T) {
	s, recoveryKey := created(t, swtpmtest.Start(t), "")
	before := copied(t, s)
	staged, err := s.Stage(t.Context())
	require.NoError(t, err)
	with := copied(t, s)
	_, err = s.Destroy(t.Context(), staged.ID)
	require.NoError(t, err)
	_, err = s.Recover(t.Context(), recoveryKey, before)
	require.NoError(t, err)
	_, err = s.Recover(t.Context(), recoveryKey, with)
	require.ErrorContains(t, err, "was destroyed here")
}

// Somebody has a copy say so of a version that is yet to come here.
func TestNothingIsTakenForDestroyedBecauseACopySaysSo(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	first, recoveryKey := created(t, one, "")
	older, there := read(t, first), store(t, two, "")
	_, err := there.Recover(t.Context(), recoveryKey, copied(t, first))
	require.NoError(t, err)
	before := copied(t, there)
	staged, err := first.Stage(t.Context())
	require.NoError(t, err)
	older.Destroyed = []string{staged.ID}
	for _, second := range []*tpm.Store{there, store(t, two, "")} {
		_, err := second.Recover(t.Context(), recoveryKey, written(t, older))
		require.NoError(t, err)
		_, err = second.Recover(t.Context(), recoveryKey, copied(t, first))
		require.NoError(t, err)
		requireVersions(t, second, older.Writes, staged.ID)
		gone, err := second.Destroyed()
		require.NoError(t, err)
		require.Empty(t, gone)
	}

	// Unless that is asked for; and then the first advice is not to destroy what is sound.
	for _, path := range []string{before, store(t, two, "").Path()} {
		second := configured(t, two, path, removes)
		_, err := second.Recover(t.Context(), recoveryKey, written(t, older))
		require.NoError(t, err)
		gone, err := second.Destroyed()
		require.NoError(t, err)
		require.Equal(t, older.Destroyed, gone)
		_, err = second.Recover(t.Context(), recoveryKey, copied(t, first))
		require.ErrorContains(t, err, "version "+staged.ID+" was destroyed here, or in a copy")
		says := err.Error()
		require.Less(t, strings.Index(says, "if nobody meant it"), strings.Index(says, "destroy it in the other file"))
	}
}

// What a copy says is not to be the reason to have another version write.
func TestWhatACopySaysIsDoubtedBeforeAnythingIsDoneForIt(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey, _, second := rotated(t, chip)
	r := read(t, s)
	r.Keys, r.Writes, r.Destroyed = r.Keys[:1], r.Keys[0].ID(), []string{second.ID}
	_, err := s.Recover(t.Context(), recoveryKey, written(t, r))
	require.ErrorContains(t, err, "who can write a copy can have it say so of any version")
	require.NotContains(t, err.Error(), "activate")
}
