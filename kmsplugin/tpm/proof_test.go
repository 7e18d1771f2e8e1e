package tpm_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// requireNothingSealed: nothing is sealed for the recovery key of a file, nor is the file changed.
func requireNothingSealed(t *testing.T, s *tpm.Store, says string) {
	t.Helper()
	before := content(t, s)
	for name, change := range map[string]func() error{
		"reseal": func() error { _, _, err := s.Reseal(t.Context(), false); return err },
		"rotate": func() error { _, err := s.Rotate(t.Context()); return err },
		"stage":  func() error { _, err := s.Stage(t.Context()); return err },
	} {
		require.ErrorContains(t, change(), says, name)
		require.Equal(t, before, content(t, s), name)
	}
}

// Who can write a backup has no key sealed for a recovery key of theirs, once it is put back.
func TestNoKeyIsSealedForARecoveryKeyThatWasPutInTheFile(t *testing.T) {
	chip := swtpmtest.Start(t)
	with, _ := created(t, chip, "sha256:7")
	without := store(t, chip, "")
	_, _, err := without.Create(t.Context(), false)
	require.NoError(t, err)
	theirs, _ := created(t, swtpmtest.Start(t), "")
	for name, from := range map[string]struct{ own, other *tpm.Store }{
		"another one": {with, theirs}, "one where there was none": {without, theirs}, "none where there was one": {with, without},
	} {
		t.Run(name, func(t *testing.T) {
			was := wrap(t, from.own)
			backup := at(t, chip, written(t, tpm.WithRecovery(read(t, from.own), read(t, from.other))), "")
			session, _, err := looked(t, backup)
			require.ErrorIs(t, err, tpm.ErrDamaged)
			require.ErrorContains(t, err, "somebody has changed the file")
			requireOpens(t, session, was) // it is read with
			requireNothingSealed(t, backup, "somebody has changed the file")

			_, recoveryKey, err := backup.Reseal(t.Context(), true)
			require.NoError(t, err)
			_, err = session.Versions(t.Context())
			require.NoError(t, err)
			requireOpens(t, session, was)
			_, err = backup.Rotate(t.Context())
			require.NoError(t, err)
			_, err = backup.Recover(t.Context(), recoveryKey, "")
			require.NoError(t, err)
		})
	}
}

// Whatever of it is changed alone.
func TestAProofIsOfAKeyWithItsTimeAndItsRecoveryKey(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey := created(t, chip, "")
	theirs, _ := created(t, swtpmtest.Start(t), "")
	for name, changed := range map[string]*tpm.Ring{
		"the recovery key":            tpm.WithPublic(read(t, s), read(t, theirs)),
		"what is sealed for it":       tpm.Forged(read(t, s)),
		"the time when it was made":   tpm.Dated(read(t, s)),
		"the proof is for no such id": tpm.Exchange(rotatedRing(t, chip)),
	} {
		backup := at(t, chip, written(t, changed), "")
		_, _, err := looked(t, backup)
		require.ErrorIs(t, err, tpm.ErrDamaged, name)
		requireNothingSealed(t, backup, "")
		_, err = store(t, swtpmtest.Start(t), "").Recover(t.Context(), recoveryKey, backup.Path())
		require.Error(t, err, name)
	}
}

func rotatedRing(t *testing.T, chip *swtpmtest.TPM) *tpm.Ring {
	t.Helper()
	s, _, _, _ := rotated(t, chip)
	return read(t, s)
}

func TestAFileOfTheFirstFormatIsReadAndSealedAgainBeforeItGrows(t *testing.T) {
	chip := swtpmtest.Start(t)
	for _, recovery := range []bool{true, false} {
		for _, way := range []string{"recover", "reseal", "reseal --recovery"} {
			if way == "recover" && !recovery {
				continue
			}
			s := store(t, chip, "")
			recoveryKey, err := tpm.CreateFirst(t.Context(), s, recovery)
			require.NoError(t, err)
			was := wrap(t, s)
			_, err = s.Activate(t.Context(), "") // which asks no TPM
			require.NoError(t, err)
			switch {
			case way == "recover":
				requireNothingSealed(t, s, "with the recovery key (recover)")
				_, err = s.Recover(t.Context(), recoveryKey, "")
			case way == "reseal" && recovery:
				continue // as requireNothingSealed has it
			default:
				_, err = s.Stage(t.Context())
				require.ErrorContains(t, err, "reseal")
				_, _, err = s.Reseal(t.Context(), way != "reseal")
			}
			require.NoError(t, err, way)
			_, err = s.Rotate(t.Context())
			require.NoError(t, err, way)
			session, _, err := looked(t, s)
			require.NoError(t, err)
			requireOpens(t, session, was)
			if way == "recover" {
				_, err = s.Recover(t.Context(), recoveryKey, "")
				require.NoError(t, err, "it is the same on paper")
			}
		}
	}
}

func TestWhatNothingProvesIsTakenIfThatIsAsked(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	s := store(t, one, "")
	recoveryKey, err := tpm.CreateFirst(t.Context(), s, true)
	require.NoError(t, err)
	there := store(t, two, "")
	_, err = there.Recover(t.Context(), recoveryKey, copied(t, s))
	require.ErrorContains(t, err, "nothing proves that version "+read(t, s).Writes)
	require.ErrorContains(t, err, "--unproven")
	require.NoFileExists(t, there.Path())
	moved := at(t, two, copied(t, s), "")
	before := content(t, moved)
	_, err = moved.Recover(t.Context(), recoveryKey, "")
	require.ErrorContains(t, err, "--unproven")
	require.Equal(t, before, content(t, moved))

	_, err = configured(t, two, there.Path(), unproven).Recover(t.Context(), recoveryKey, forged(t, s))
	require.NoError(t, err, "that is what was asked for")
	_, err = s.Recover(t.Context(), recoveryKey, "")
	require.NoError(t, err)
	_, err = there.Recover(t.Context(), recoveryKey, copied(t, s))
	require.ErrorContains(t, err, "move this file away")
	_, err = configured(t, two, moved.Path(), unproven).Recover(t.Context(), recoveryKey, "")
	require.NoError(t, err)
	_, err = moved.Recover(t.Context(), recoveryKey, copied(t, s))
	require.NoError(t, err)
}

// A file without its proofs says that it has the first format.
func TestAFileIsNotPassedOffAsOneWithoutProofs(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	s, recoveryKey := created(t, one, "")
	there := store(t, two, "")
	_, err := configured(t, two, there.Path(), unproven).Recover(t.Context(), recoveryKey, written(t, tpm.AsFirst(read(t, s), "")))
	require.ErrorIs(t, err, tpm.ErrRecoveryKey, "the half that it has in later ones is another one")
	_, err = there.Recover(t.Context(), recoveryKey, written(t, tpm.AsFirst(read(t, s), recoveryKey)))
	require.ErrorContains(t, err, "nothing proves", "who knows both halves is not believed, either")
	require.NoFileExists(t, there.Path())

	// Nor where the TPM opens it.
	backup := at(t, one, written(t, tpm.AsFirst(read(t, s), "")), "")
	_, _, err = looked(t, backup)
	require.ErrorIs(t, err, tpm.ErrDamaged)
	requireNothingSealed(t, backup, "")
}

// The plugin that serves opens no key again that is sealed as it was, and one key says whose all are.
func TestABackupWithAForgedKeyIsToldByAPluginThatServes(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey, first, _ := rotated(t, chip)
	sound := read(t, s)
	theirs, _ := created(t, swtpmtest.Start(t), "")
	forgedOne := tpm.Forged(sound)
	forgedOne.Keys[1] = sound.Keys[1] // the one that writes is as it was
	again := at(t, chip, copied(t, s), "")
	_, _, err := again.Reseal(t.Context(), true)
	require.NoError(t, err)
	for name, backup := range map[string]*tpm.Ring{
		"what is sealed for the recovery key": forgedOne,
		"the recovery key":                    tpm.WithPublic(sound, read(t, theirs)),
		"all but what the TPM opens first":    tpm.WithSealed(read(t, again), sound, 0),
	} {
		t.Run(name, func(t *testing.T) {
			s := at(t, chip, written(t, sound), "")
			session, _, err := looked(t, s)
			require.NoError(t, err)
			data, err := tpm.Encode(backup)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(s.Path(), data, 0o600))
			for range 3 {
				requireTrouble(t, session, first, tpm.ErrDamaged, "somebody has changed the file")
			}
			data, err = tpm.Encode(sound)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(s.Path(), data, 0o600))
			_, err = session.Versions(t.Context())
			require.NoError(t, err)
			_, err = s.Recover(t.Context(), recoveryKey, "")
			require.NoError(t, err)
		})
	}
}

// Of an older backup and the file of now somebody has made one.
func TestNoKeyIsSealedForARecoveryKeyThatWasReplaced(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, _ := created(t, chip, "")
	before := read(t, s)
	_, _, err := s.Reseal(t.Context(), true)
	require.NoError(t, err)
	_, err = s.Rotate(t.Context())
	require.NoError(t, err)
	mixed := tpm.WithPublic(read(t, s), before)
	mixed.Keys[0], mixed.Writes = before.Keys[0], before.Writes
	forged := tpm.Forged(read(t, s))
	forged.Keys[1] = read(t, s).Keys[1]
	for _, r := range []*tpm.Ring{mixed, forged} {
		backup := at(t, chip, written(t, r), "")
		_, _, err = looked(t, backup)
		require.ErrorIs(t, err, tpm.ErrDamaged)
		requireNothingSealed(t, backup, "somebody has changed the file")
	}
}

// Nodes are brought to the second format one after the other.
func TestFilesOfBothFormatsMeet(t *testing.T) {
	for _, anew := range []bool{false, true} {
		for _, adopt := range []bool{true, false} {
			chip := swtpmtest.Start(t)
			s := store(t, chip, "")
			recoveryKey, err := tpm.CreateFirst(t.Context(), s, true)
			require.NoError(t, err)
			was, first := wrap(t, s), content(t, s)
			here := configured(t, chip, copied(t, s), func(config *tpm.Config) { config.Adopt = adopt })
			session, _, err := looked(t, here)
			require.NoError(t, err)
			now := recoveryKey
			if anew {
				_, now, err = s.Reseal(t.Context(), true)
			} else {
				_, err = s.Recover(t.Context(), recoveryKey, "")
			}
			require.NoError(t, err)
			staged, err := s.Stage(t.Context())
			require.NoError(t, err)
			_, err = here.Recover(t.Context(), now, copied(t, s))
			_, told := session.Versions(t.Context())
			require.NoError(t, told)
			requireOpens(t, session, was)
			if anew && !adopt {
				require.ErrorContains(t, err, "whose the recovery key of this file is cannot be told")
				continue
			}
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(here.Path(), first, 0o600))
			requireTrouble(t, session, was, kmsplugin.ErrUnavailable, "no longer has version "+staged.ID)
		}
	}
}

// Somebody has a backup say that its keys are bound to no PCRs.
func TestABackupThatSaysOfOtherPCRsIsATrouble(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey := created(t, chip, "sha256:7")
	backup := at(t, chip, written(t, tpm.WithPCRs(read(t, s), "")), "")
	_, found, err := looked(t, backup)
	require.Error(t, err)
	require.Empty(t, found.All)
	before := content(t, backup)
	_, err = backup.Recover(t.Context(), recoveryKey, "")
	require.Error(t, err)
	require.Equal(t, before, content(t, backup))
	clearTPM(t, chip)
	info, err := at(t, chip, backup.Path(), "sha256:7").Recover(t.Context(), recoveryKey, "")
	require.NoError(t, err)
	require.Equal(t, "sha256:7", info.PCRs, "as it was asked for")
}
