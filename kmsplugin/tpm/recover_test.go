package tpm_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/filelock"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// forged is a copy as somebody leaves it who can write it, and has neither a TPM nor the recovery key:
// under the ids of the file are KEKs that they know.
func forged(t *testing.T, s *tpm.Store) (path string) {
	t.Helper()
	r, err := tpm.Decode(content(t, s))
	require.NoError(t, err)
	data, err := tpm.Encode(tpm.Forged(r))
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "forged.json")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func TestNoCopyPutsAnotherKeyUnderAnIDThatIsHere(t *testing.T) {
	for name, trouble := range map[string]func(*testing.T, *swtpmtest.TPM, *tpm.Store){
		"the TPM opens what is here":              func(*testing.T, *swtpmtest.TPM, *tpm.Store) {},
		"only the recovery key does: another TPM": func(t *testing.T, chip *swtpmtest.TPM, _ *tpm.Store) { clearTPM(t, chip) },
		"only the recovery key does: PCRs":        func(t *testing.T, chip *swtpmtest.TPM, _ *tpm.Store) { extend(t, chip, 7) },
		"only the TPM does: its recovery key is another one": func(t *testing.T, _ *swtpmtest.TPM, s *tpm.Store) {
			_, _, err := s.Reseal(t.Context(), true)
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			chip := swtpmtest.Start(t)
			s, recoveryKey := created(t, chip, "sha256:7")
			copy, sound := forged(t, s), copied(t, s)
			trouble(t, chip, s)
			before := content(t, s)
			infos, err := s.List()
			require.NoError(t, err)
			_, err = s.Recover(t.Context(), recoveryKey, copy)
			require.ErrorContains(t, err, "version "+infos[0].ID+" is another key than the one that is here")
			require.Equal(t, before, content(t, s))
			_, err = s.Recover(t.Context(), recoveryKey, sound)
			require.NoError(t, err)
		})
	}
}

// As docs/plugins/tpm.md says: a copy has to be guarded against writing.
func TestNobodyCanTellWhereNothingOpensWhatIsHere(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey := created(t, chip, "")
	copy := forged(t, s)
	_, _, err := s.Reseal(t.Context(), true)
	require.NoError(t, err)
	clearTPM(t, chip)
	_, err = s.Recover(t.Context(), recoveryKey, copy)
	require.NoError(t, err, "a damaged mainboard and a lost recovery key are no end")
}

func TestAKeyThatDoesNotOpenIsHealedByACopy(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey, first, _ := rotated(t, chip)
	sound := copied(t, s)
	r, err := tpm.Decode(content(t, s))
	require.NoError(t, err)
	data, err := tpm.Encode(tpm.Exchange(r))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.Path(), data, 0o600))
	_, err = s.Recover(t.Context(), recoveryKey, sound)
	require.NoError(t, err)
	session, _, err := looked(t, s)
	require.NoError(t, err)
	requireOpens(t, session, first)
}

// A backup that was put in the place of the file may be a forged one.
func TestAFileWhoseRecoveryPartIsAnotherKeyIsNotRecovered(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey := created(t, chip, "")
	was := wrap(t, s)
	changed := at(t, chip, forged(t, s), "")
	_, err := changed.Recover(t.Context(), recoveryKey, "")
	require.ErrorContains(t, err, "seal the file again with the TPM (reseal)")
	_, _, err = changed.Reseal(t.Context(), false)
	require.NoError(t, err)
	_, err = changed.Recover(t.Context(), recoveryKey, "")
	require.NoError(t, err)
	session, _, err := looked(t, changed)
	require.NoError(t, err)
	requireOpens(t, session, was)
}

// Somebody makes a new recovery key while a recovery waits for its turn.
func TestARecoveryInPlaceIsOfTheFileAsItIsThen(t *testing.T) {
	chip := swtpmtest.Start(t)
	made, old := created(t, chip, "")
	resealed := at(t, chip, copied(t, made), "")
	_, recoveryKey, err := resealed.Reseal(t.Context(), true)
	require.NoError(t, err)
	clock := clocktesting.NewFakeClock(time.Now())
	s, err := tpm.New(tpm.Config{Device: chip.Device(), File: made.Path(), Adopt: true, Clock: clock})
	require.NoError(t, err)

	lock, err := filelock.TryAcquire(s.Path() + ".lock")
	require.NoError(t, err)
	ended := make(chan error)
	go func() { _, err := s.Recover(t.Context(), old, ""); ended <- err }()
	require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond)
	require.NoError(t, os.WriteFile(s.Path(), content(t, resealed), 0o600))
	require.NoError(t, lock.Release())
	clock.Step(time.Second)
	require.ErrorIs(t, <-ended, tpm.ErrRecoveryKey)
	_, err = s.Recover(t.Context(), recoveryKey, "")
	require.NoError(t, err)
}
