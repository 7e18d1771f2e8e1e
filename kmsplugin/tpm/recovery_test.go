package tpm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

func copied(t *testing.T, s *tpm.Store) (path string) {
	t.Helper()
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "copy.json")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func TestARecoveryKeyIsReadAsPeopleTypeIt(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey := created(t, chip, "")
	require.Regexp(t, `^([A-Z2-7]{4}-){13}[A-Z2-7]{4}$`, recoveryKey)
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	require.NotContains(t, string(data), recoveryKey[:9])
	for _, typed := range []string{
		recoveryKey, strings.ToLower(recoveryKey), strings.ReplaceAll(recoveryKey, "-", " ") + "\n", strings.ReplaceAll(recoveryKey, "-", ""),
		strings.NewReplacer("O", "0", "I", "1", "B", "8").Replace(recoveryKey),
	} {
		_, err := s.Recover(t.Context(), typed, "")
		require.NoError(t, err)
	}
}

func TestAWrongRecoveryKeyIsToldAndChangesNothing(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey := created(t, chip, "")
	_, ofAnother := created(t, chip, "")
	before, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	mistyped := "A" + recoveryKey[1:]
	if mistyped == recoveryKey {
		mistyped = "B" + recoveryKey[1:]
	}
	for given, says := range map[string]string{
		"":                     "14 groups",
		"short":                "14 groups",
		recoveryKey + "-AAAA":  "14 groups",
		recoveryKey[:68] + "?": "14 groups",
		mistyped:               "a character is mistyped",
		ofAnother:              "that of another file",
	} {
		_, err := s.Recover(t.Context(), given, "")
		require.ErrorIs(t, err, tpm.ErrRecoveryKey)
		require.ErrorContains(t, err, says)
		if len(given) > 8 {
			require.NotContains(t, err.Error(), given[:8])
		}
	}
	none := store(t, chip, "")
	_, no, err := none.Create(t.Context(), false)
	require.NoError(t, err)
	require.Empty(t, no)
	_, err = none.Recover(t.Context(), recoveryKey, "")
	require.ErrorIs(t, err, tpm.ErrRecoveryKey)
	require.ErrorContains(t, err, "no recovery key was made")
	after, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// A rotation of two nodes, each with a TPM of its own.
func TestNodesShareTheirKeysByTheRecoveryKey(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	first, recoveryKey := created(t, one, "")
	second := store(t, two, "sha256:7")
	_, err := second.Recover(t.Context(), recoveryKey, copied(t, first))
	require.NoError(t, err)
	session, _, err := looked(t, second)
	require.NoError(t, err)
	requireOpens(t, session, wrap(t, first))

	staged, err := first.Stage(t.Context())
	require.NoError(t, err)
	require.False(t, staged.Writes)
	older := copied(t, second)
	_, err = second.Recover(t.Context(), recoveryKey, copied(t, first))
	require.NoError(t, err)
	versions, err := session.Versions(t.Context())
	require.NoError(t, err)
	require.Len(t, versions.All, 2)
	require.Zero(t, versions.Writes)
	info, err := first.Activate(t.Context(), staged.KeyID[:20])
	require.NoError(t, err)
	require.True(t, info.Writes)
	requireOpens(t, session, wrap(t, first))
	_, err = first.Activate(t.Context(), "nobody")
	require.ErrorContains(t, err, "none of its 2 versions")

	infos, err := second.List()
	require.NoError(t, err)
	require.Equal(t, "sha256:7", infos[1].PCRs)
	_, err = second.Recover(t.Context(), recoveryKey, older)
	require.NoError(t, err, "it brings nothing, and takes nothing away")
	requireVersions(t, second, infos[0].ID, infos[1].ID)
	_, err = second.Recover(t.Context(), recoveryKey, older+".no")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, older+".no")
}

func TestResealingTakesThePCRsAsTheyAre(t *testing.T) {
	chip := swtpmtest.Start(t)
	bound, _ := created(t, chip, "sha256:7")
	was := wrap(t, bound)
	_, _, err := at(t, chip, bound.Path(), tpm.NoPCRs).Reseal(t.Context(), false) // before the update
	require.NoError(t, err)
	extend(t, chip, 7)
	session, _, err := looked(t, bound)
	require.NoError(t, err)
	requireOpens(t, session, was)
	info, _, err := bound.Reseal(t.Context(), false) // after it
	require.NoError(t, err)
	require.Equal(t, "sha256:7", info.PCRs)
	require.True(t, info.Recovery, "as it was")
	extend(t, chip, 7)
	requireTrouble(t, session, was, kmsplugin.ErrKeyDisabled, "PCR [7]")
	_, _, err = bound.Reseal(t.Context(), false)
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
}

func TestANewRecoveryKeyTakesThePlaceOfTheOld(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, old := created(t, chip, "")
	was := wrap(t, s)
	_, recoveryKey, err := s.Reseal(t.Context(), true)
	require.NoError(t, err)
	_, err = s.Recover(t.Context(), old, "")
	require.ErrorIs(t, err, tpm.ErrRecoveryKey)
	_, err = s.Recover(t.Context(), recoveryKey, "")
	require.NoError(t, err)
	session, _, err := looked(t, s)
	require.NoError(t, err)
	requireOpens(t, session, was)
}

func TestAFileMadeAnewHasOtherKeyIDs(t *testing.T) {
	s, _ := created(t, swtpmtest.Start(t), "")
	was := wrap(t, s)
	require.Equal(t, was.version, wrap(t, s).version, "a restart changes nothing")
	_, _, err := s.Create(t.Context(), false)
	require.ErrorIs(t, err, os.ErrExist)
	require.NoError(t, os.Remove(s.Path()))
	_, _, err = s.Create(t.Context(), false)
	require.NoError(t, err)
	require.NotEqual(t, was.version.KeyID(), wrap(t, s).version.KeyID())
}

// What holds for a node is its own: another one's file brings keys and nothing else.
func TestARecoveryFromACopyLeavesWhatHoldsForThisNode(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	first, given := created(t, one, "")
	second := store(t, two, "sha256:7")
	was, err := second.Recover(t.Context(), given, copied(t, first))
	require.NoError(t, err)
	second = at(t, two, second.Path(), "")
	_, own, err := second.Reseal(t.Context(), true)
	require.NoError(t, err)
	rotated, err := first.Rotate(t.Context())
	require.NoError(t, err)

	copy := copied(t, first)
	info, err := second.Recover(t.Context(), given, copy)
	require.NoError(t, err)
	require.Equal(t, was.ID, info.ID, "it writes with what it did")
	require.True(t, info.Writes)
	infos, err := second.List()
	require.NoError(t, err)
	require.Equal(t, rotated.ID, infos[1].ID, "and reads what is new")
	for _, info := range infos {
		require.Equal(t, "sha256:7", info.PCRs)
	}
	_, err = second.Recover(t.Context(), given, "")
	require.ErrorIs(t, err, tpm.ErrRecoveryKey)
	_, err = second.Recover(t.Context(), own, "")
	require.NoError(t, err)
	extend(t, two, 7)
	_, _, err = looked(t, second)
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)

	// Unless it is asked for.
	adopting, err := tpm.New(tpm.Config{Device: two.Device(), File: second.Path(), PCRs: tpm.NoPCRs, Adopt: true})
	require.NoError(t, err)
	info, err = adopting.Recover(t.Context(), given, copy)
	require.NoError(t, err)
	require.Empty(t, info.PCRs)
	_, err = second.Recover(t.Context(), own, "")
	require.ErrorIs(t, err, tpm.ErrRecoveryKey)
	_, err = second.Recover(t.Context(), given, "")
	require.NoError(t, err)
}

// It has one after a recovery, in any case.
func TestAFileWithoutARecoveryKeyTakesThatOfTheCopy(t *testing.T) {
	chip := swtpmtest.Start(t)
	s := store(t, chip, "")
	_, _, err := s.Create(t.Context(), false)
	require.NoError(t, err)
	with := at(t, chip, copied(t, s), "")
	_, recoveryKey, err := with.Reseal(t.Context(), true)
	require.NoError(t, err)
	info, err := s.Recover(t.Context(), recoveryKey, with.Path())
	require.NoError(t, err)
	require.True(t, info.Recovery)
	_, err = s.Recover(t.Context(), recoveryKey, "")
	require.NoError(t, err)
}

func TestNothingIsBoundToPCRsWithoutARecoveryKey(t *testing.T) {
	chip := swtpmtest.Start(t)
	s := store(t, chip, "")
	_, _, err := s.Create(t.Context(), false)
	require.NoError(t, err)
	before, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	bound := at(t, chip, s.Path(), "sha256:7")
	_, _, err = bound.Reseal(t.Context(), false)
	require.ErrorIs(t, err, tpm.ErrConfig)
	require.ErrorContains(t, err, "reseal --recovery")
	after, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	require.Equal(t, before, after)
	info, recoveryKey, err := bound.Reseal(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, "sha256:7", info.PCRs)
	require.NotEmpty(t, recoveryKey)
}
