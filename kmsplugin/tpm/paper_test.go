package tpm_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// showing is a store of a file that shows its new recovery keys.
func showing(t *testing.T, chip *swtpmtest.TPM, path string, show func(tpm.KeyInfo, string) error) *tpm.Store {
	t.Helper()
	s, err := tpm.New(tpm.Config{Device: chip.Device(), File: path, Show: show})
	require.NoError(t, err)
	return s
}

func TestARecoveryKeyIsShownBeforeTheFileNeedsIt(t *testing.T) {
	chip, path := swtpmtest.Start(t), filepath.Join(t.TempDir(), "kek.json")
	var before []byte
	var told, shown string
	s := showing(t, chip, path, func(writes tpm.KeyInfo, recoveryKey string) error {
		now, err := os.ReadFile(path)
		require.Equal(t, before == nil, os.IsNotExist(err))
		require.Equal(t, before, now, "it is as it was")
		told, shown = writes.KeyID, recoveryKey
		return nil
	})
	info, recoveryKey, err := s.Create(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, recoveryKey, shown)
	require.Equal(t, info.KeyID, told)

	before, err = os.ReadFile(path)
	require.NoError(t, err)
	_, recoveryKey, err = s.Reseal(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, recoveryKey, shown)
	require.Equal(t, info.KeyID, told)
}

func TestNothingChangesWhereARecoveryKeyCannotBeShown(t *testing.T) {
	chip := swtpmtest.Start(t)
	sound, old := created(t, chip, "")
	gone := errors.New("nobody reads it")
	fails := func(tpm.KeyInfo, string) error { return gone }
	before, err := os.ReadFile(sound.Path())
	require.NoError(t, err)
	_, shown, err := showing(t, chip, sound.Path(), fails).Reseal(t.Context(), true)
	require.ErrorIs(t, err, gone)
	require.ErrorContains(t, err, "nothing is changed")
	require.Empty(t, shown)
	after, err := os.ReadFile(sound.Path())
	require.NoError(t, err)
	require.Equal(t, before, after)
	_, err = sound.Recover(t.Context(), old, "")
	require.NoError(t, err)

	path := filepath.Join(t.TempDir(), "kek.json")
	_, _, err = showing(t, chip, path, fails).Create(t.Context(), true)
	require.ErrorIs(t, err, gone)
	require.NoFileExists(t, path)
}

// The file has taken its place, and nobody knows whether it stays there.
func TestARecoveryKeyIsToldOnceTheFileHasItWhateverFails(t *testing.T) {
	chip := swtpmtest.Start(t)
	made, _ := created(t, chip, "")
	for name, change := range map[string]struct {
		s  *tpm.Store
		do func(*tpm.Store) (tpm.KeyInfo, string, error)
	}{
		"create": {store(t, chip, ""), func(s *tpm.Store) (tpm.KeyInfo, string, error) { return s.Create(t.Context(), true) }},
		"reseal": {at(t, chip, made.Path(), ""), func(s *tpm.Store) (tpm.KeyInfo, string, error) { return s.Reseal(t.Context(), true) }},
	} {
		tpm.FailToSync(change.s)
		info, recoveryKey, err := change.do(change.s)
		require.ErrorIs(t, err, syscall.EIO, name)
		require.ErrorContains(t, err, "sealed for the new recovery key: keep that and the one before")
		require.NotEmpty(t, recoveryKey, name)
		again, err := at(t, chip, change.s.Path(), "").Recover(t.Context(), recoveryKey, "")
		require.NoError(t, err)
		require.Equal(t, info.KeyID, again.KeyID)
	}
}

func TestARecoveryKeyThatWasShownForNothingIsSaidSo(t *testing.T) {
	chip := swtpmtest.Start(t)
	made, old := created(t, chip, "")
	for name, path := range map[string]string{"create": filepath.Join(t.TempDir(), "kek.json"), "reseal": made.Path()} {
		s := showing(t, chip, path, func(tpm.KeyInfo, string) error { return nil })
		tpm.FailToPublish(s)
		change := s.Reseal
		if name == "create" {
			change = s.Create
		}
		_, recoveryKey, err := change(t.Context(), true)
		require.ErrorIs(t, err, syscall.ENOSPC, name)
		require.ErrorContains(t, err, "the recovery key that was shown opens nothing")
		require.Empty(t, recoveryKey)
	}
	_, err := made.Recover(t.Context(), old, "")
	require.NoError(t, err)
}
