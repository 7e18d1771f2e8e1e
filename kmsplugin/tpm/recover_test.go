package tpm_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/filelock"
	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// read is a file as it is.
func read(t *testing.T, s *tpm.Store) *tpm.Ring {
	t.Helper()
	r, err := tpm.Decode(content(t, s))
	require.NoError(t, err)
	return r
}

// written is a file of its own.
func written(t *testing.T, r *tpm.Ring) (path string) {
	t.Helper()
	data, err := tpm.Encode(r)
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "written.json")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// forged is a copy as somebody leaves it who can write it, and has neither a TPM nor the recovery key:
// under the ids of the file are KEKs that they know.
func forged(t *testing.T, s *tpm.Store) (path string) {
	t.Helper()
	return written(t, tpm.Forged(read(t, s)))
}

// configured is a store with settings of its own.
func configured(t *testing.T, chip *swtpmtest.TPM, path string, set func(*tpm.Config)) *tpm.Store {
	t.Helper()
	config := tpm.Config{Device: chip.Device(), File: path, Check: time.Nanosecond}
	set(&config)
	s, err := tpm.New(config)
	require.NoError(t, err)
	return s
}

func adopts(config *tpm.Config)   { config.Adopt = true }
func unproven(config *tpm.Config) { config.Unproven = true }
func removes(config *tpm.Config)  { config.RemoveDestroyed = true }

// Where there is nothing to hold it against, either.
func TestNoCopyBringsAKeyThatItsNodesHaveNotMade(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	s, recoveryKey := created(t, one, "")
	was, first := wrap(t, s), copied(t, s)
	there := store(t, two, "")
	_, err := there.Recover(t.Context(), recoveryKey, forged(t, s))
	require.ErrorIs(t, err, tpm.ErrDamaged)
	require.ErrorContains(t, err, "was not sealed by one of its nodes")
	require.NoFileExists(t, there.Path())

	// Nor as a new version.
	_, err = there.Recover(t.Context(), recoveryKey, first)
	require.NoError(t, err)
	_, err = s.Stage(t.Context())
	require.NoError(t, err)
	sound := read(t, s)
	mixed := tpm.Forged(sound)
	mixed.Keys[0] = sound.Keys[0]
	before := content(t, there)
	_, err = there.Recover(t.Context(), recoveryKey, written(t, mixed))
	require.ErrorContains(t, err, "as version "+sound.Keys[1].ID()+" was not sealed by one of its nodes")
	require.Equal(t, before, content(t, there))
	_, err = there.Recover(t.Context(), recoveryKey, copied(t, s))
	require.NoError(t, err)
	session, _, err := looked(t, there)
	require.NoError(t, err)
	requireOpens(t, session, was)
}

// Even by somebody who has the recovery key.
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
			copy, sound := written(t, tpm.ForgedWith(read(t, s), recoveryKey)), copied(t, s)
			trouble(t, chip, s)
			before := content(t, s)
			infos, err := s.List()
			require.NoError(t, err)
			_, err = s.Recover(t.Context(), recoveryKey, copy)
			require.ErrorContains(t, err, "version "+infos[0].ID+" is another key than the one that is here")
			require.ErrorContains(t, err, "move this file away")
			require.Equal(t, before, content(t, s))
			_, err = s.Recover(t.Context(), recoveryKey, sound)
			require.NoError(t, err)
		})
	}
}

// A damaged mainboard and a lost recovery key are no end.
func TestARecoveryKeyThatNothingProvesIsReplacedIfThatIsAsked(t *testing.T) {
	chip := swtpmtest.Start(t)
	s, recoveryKey := created(t, chip, "")
	copy := copied(t, s)
	_, own, err := s.Reseal(t.Context(), true)
	require.NoError(t, err)
	theirs, _ := created(t, swtpmtest.Start(t), "")
	backup := at(t, chip, written(t, tpm.WithRecovery(read(t, s), read(t, theirs))), "")
	refused := func(s *tpm.Store) {
		before := content(t, s)
		_, err := s.Recover(t.Context(), recoveryKey, copy)
		require.ErrorContains(t, err, "whose the recovery key of this file is cannot be told")
		require.ErrorContains(t, err, "--adopt-recovery")
		require.Equal(t, before, content(t, s))
	}
	refused(backup)
	clearTPM(t, chip)
	refused(backup)
	refused(s)
	lost := at(t, chip, copied(t, s), "")
	for _, s := range []*tpm.Store{backup, lost} {
		_, err = configured(t, chip, s.Path(), adopts).Recover(t.Context(), recoveryKey, copy)
		require.NoError(t, err)
		_, err = s.Rotate(t.Context())
		require.NoError(t, err)
	}
	_, err = s.Recover(t.Context(), own, "")
	require.NoError(t, err)
	_, err = s.Recover(t.Context(), recoveryKey, copy)
	require.NoError(t, err, "it keeps its own, which the TPM says is its")
	_, err = s.Recover(t.Context(), own, "")
	require.NoError(t, err)
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
	require.ErrorContains(t, err, "for a new recovery key (reseal --recovery)")
	_, recoveryKey, err = changed.Reseal(t.Context(), true)
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

// A PCR is extended when the first is sealed again and proven to open, and the second is not yet.
func TestAllKeysAreSealedForTheSamePCRs(t *testing.T) {
	for _, way := range []string{"reseal", "recover"} {
		chip := swtpmtest.Start(t)
		s, recoveryKey, _, _ := rotated(t, chip)
		b, before := onBus(t, chip), content(t, s)
		bound := b.store(t, s.Path(), "sha256:7")
		made, loaded := false, 0
		b.before = func(command []byte, chip io.ReadWriter) {
			made = made || code(command) == tpm2.TPMCCCreate
			if made && code(command) == tpm2.TPMCCLoad {
				loaded++
			}
			if loaded == 2 {
				_, _ = chip.Write(extendPCR7)
				_, _ = message(chip)
				loaded++
			}
		}
		var err error
		if way == "reseal" {
			_, _, err = bound.Reseal(t.Context(), false)
		} else {
			_, err = bound.Recover(t.Context(), recoveryKey, "")
		}
		require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled, way)
		require.ErrorContains(t, err, "PCR [7]", way)
		require.Equal(t, before, content(t, s), way)
	}
}

// extendPCR7 is TPM2_PCR_Extend with zeros, in the bank of SHA-256.
var extendPCR7 = append([]byte("\x80\x02\x00\x00\x00\x41\x00\x00\x01\x82\x00\x00\x00\x07\x00\x00\x00\x09\x40\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x0b"), make([]byte, 32)...)

// What the flag refuses a file does not bring.
func TestNoKeyIsSealedForPCRsThatAnybodyResets(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	s, recoveryKey := created(t, one, "sha256:7")
	there, copy := store(t, two, ""), written(t, tpm.WithPCRs(read(t, s), "sha256:7,23"))
	_, err := there.Recover(t.Context(), recoveryKey, copy)
	require.ErrorIs(t, err, tpm.ErrConfig)
	require.ErrorContains(t, err, "resets [23] at any time")
	require.ErrorContains(t, err, "--pcrs")
	require.NoFileExists(t, there.Path())
	_, err = at(t, two, there.Path(), "sha256:7").Recover(t.Context(), recoveryKey, copy)
	require.NoError(t, err)
}
