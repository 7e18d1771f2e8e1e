package keyfile_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/filelock"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

func TestWhatIsStagedUnwrapsAndWrapsOnceItIsActivated(t *testing.T) {
	file, first := created(t)
	session, _ := looked(t, file)
	staged, err := file.Stage(t.Context())
	require.NoError(t, err)
	require.False(t, staged.Writes)
	versions, err := session.Versions(t.Context())
	require.NoError(t, err)
	require.Len(t, versions.All, 2)
	require.Equal(t, first.KeyID, versions.All[versions.Writes].KeyID())

	for name, activate := range map[string]string{"the newest": "", "by its id": staged.ID[:12], "by its key_id": staged.KeyID} {
		active, err := file.Activate(t.Context(), activate)
		require.NoError(t, err, name)
		require.True(t, active.Writes)
		require.Equal(t, staged.ID, active.ID)
	}
	versions, err = session.Versions(t.Context())
	require.NoError(t, err)
	require.Equal(t, staged.KeyID, versions.All[versions.Writes].KeyID())
	back, err := file.Activate(t.Context(), first.ID)
	require.NoError(t, err)
	require.Equal(t, first, back, "and back")
	_, err = file.Activate(t.Context(), "nobody")
	require.ErrorContains(t, err, "none of its 2 versions")
}

func TestWhatChangesNothingLeavesTheFile(t *testing.T) {
	file, _ := created(t)
	same := copyOf(t, file)
	before, err := os.Stat(file.Path())
	require.NoError(t, err)
	_, err = file.Activate(t.Context(), "")
	require.NoError(t, err)
	_, err = file.Merge(t.Context(), same.Path())
	require.NoError(t, err)
	_, err = file.Import(t.Context(), same.Path())
	require.NoError(t, err)
	after, err := os.Stat(file.Path())
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	requireAlone(t, file)
}

// copyOf is a file as it came from another node.
func copyOf(t *testing.T, file *keyfile.File) *keyfile.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copy.json")
	require.NoError(t, os.WriteFile(path, content(t, file), 0o600))
	return keyfile.At(path)
}

// Rotated on each of two nodes, neither reads what the other writes, until they have merged.
func TestAForkIsHealedByMergingBothWays(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T) *keyfile.File{
		"of format 2": func(t *testing.T) *keyfile.File { file, _ := created(t); return file },
		"of format 1": func(t *testing.T) *keyfile.File { return placed(t, "testdata/v1.json") },
	} {
		t.Run(name, func(t *testing.T) {
			one := begin(t)
			two := copyOf(t, one)
			afterwards := keyfile.At(two.Path(), keyfile.WithClock(clocktesting.NewFakeClock(time.Now().Add(time.Minute))))
			_, err := one.Rotate(t.Context())
			require.NoError(t, err)
			later, err := afterwards.Rotate(t.Context())
			require.NoError(t, err)
			session, had := looked(t, one)

			ofOne, ofTwo := copyOf(t, one), copyOf(t, two)
			info, err := one.Merge(t.Context(), ofTwo.Path())
			require.NoError(t, err)
			require.Equal(t, later, info, "the later one writes")
			_, err = two.Merge(t.Context(), ofOne.Path())
			require.NoError(t, err)
			require.Equal(t, string(content(t, one)), string(content(t, two)))
			versions, err := session.Versions(t.Context())
			require.NoError(t, err, "nothing is lost to who serves")
			require.Len(t, versions.All, len(had.All)+1)
			requireAlone(t, one)
		})
	}
}

// placed is a file of testdata in a folder of its own.
func placed(t *testing.T, golden string) *keyfile.File {
	t.Helper()
	data, err := os.ReadFile(golden)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "kek.json")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return keyfile.At(path)
}

func TestAFileOfFormat1IsFormat2AfterAChangeAndSoughtUnderTheSameKeyIDs(t *testing.T) {
	file := placed(t, "testdata/v1.json")
	before, err := file.List()
	require.NoError(t, err)
	require.Equal(t, "2.303132333435363738393a3b3c3d3e3f", before[1].Formerly)
	require.True(t, before[1].Writes)
	session, had := looked(t, file)
	_, err = file.Stage(t.Context())
	require.NoError(t, err)
	require.True(t, bytes.Contains(content(t, file), []byte(`"version": 2`)))
	after, err := file.List()
	require.NoError(t, err)
	require.Equal(t, before, after[:2])
	versions, err := session.Versions(t.Context())
	require.NoError(t, err)
	require.Equal(t, had.All, versions.All[:2])
}

// Nodes of which one has changed its file since format 1 and another has not.
func TestAMergeOfWhatIsTheSameMakesTheSameFile(t *testing.T) {
	one, two := placed(t, "testdata/v1.json"), placed(t, "testdata/v1-as-v2.json")
	_, err := one.Merge(t.Context(), two.Path())
	require.NoError(t, err)
	_, err = two.Merge(t.Context(), placed(t, "testdata/v1.json").Path())
	require.NoError(t, err)
	require.Equal(t, string(content(t, two)), string(content(t, one)))
}

func TestImportPutsACopyInPlace(t *testing.T) {
	source, _ := created(t)
	t.Run("where there is none", func(t *testing.T) {
		file := keyfile.At(filepath.Join(t.TempDir(), "kek.json"))
		info, err := file.Import(t.Context(), source.Path())
		require.NoError(t, err)
		require.True(t, info.Writes)
		require.Equal(t, content(t, source), content(t, file))
		stat, err := os.Stat(file.Path())
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), stat.Mode())
		requireAlone(t, file)
	})
	t.Run("where all of it is in the copy", func(t *testing.T) {
		file := copyOf(t, source)
		newer := copyOf(t, source)
		info, err := newer.Rotate(t.Context())
		require.NoError(t, err)
		session, _ := looked(t, file)
		imported, err := file.Import(t.Context(), newer.Path())
		require.NoError(t, err)
		require.Equal(t, info, imported)
		require.Equal(t, content(t, newer), content(t, file))
		versions, err := session.Versions(t.Context())
		require.NoError(t, err)
		require.Equal(t, info.KeyID, versions.All[versions.Writes].KeyID())
	})
	t.Run("not where a version would be lost", func(t *testing.T) {
		file := copyOf(t, source)
		_, err := file.Rotate(t.Context())
		require.NoError(t, err)
		before := content(t, file)
		_, err = file.Import(t.Context(), source.Path())
		require.ErrorContains(t, err, "merge it instead")
		require.Equal(t, before, content(t, file))
	})
}

func TestMergingWhatIsNotTheSameUnderOneNameIsRefused(t *testing.T) {
	id := bytes.Repeat([]byte{1}, 16)
	clock := clocktesting.NewFakeClock(noon)
	one := keyfile.At(filepath.Join(t.TempDir(), "a"), keyfile.WithClock(clock), keyfile.WithRandom(bytes.NewReader(append(id, make([]byte, 32)...))))
	two := keyfile.At(filepath.Join(t.TempDir(), "b"), keyfile.WithClock(clock), keyfile.WithRandom(bytes.NewReader(append(id, bytes.Repeat([]byte{2}, 32)...))))
	for _, file := range []*keyfile.File{one, two} {
		_, err := file.Create(t.Context())
		require.NoError(t, err)
	}
	before := content(t, one)
	_, err := one.Merge(t.Context(), two.Path())
	require.ErrorIs(t, err, keyfile.ErrDamaged)
	require.ErrorContains(t, err, two.Path())
	require.Equal(t, before, content(t, one))
}

func TestWhatAKilledWriterLeftIsRemovedWhenItIsOpened(t *testing.T) {
	file, _ := created(t)
	left := filepath.Join(filepath.Dir(file.Path()), ".kek.json.new")
	require.NoError(t, os.WriteFile(left, content(t, file), 0o600))
	writing, err := filelock.TryAcquire(file.Path() + ".lock")
	require.NoError(t, err)
	open(file)
	require.FileExists(t, left, "somebody writes it")
	require.NoError(t, writing.Release())
	open(file)
	requireAlone(t, file)
}

// A node comes up whose clock is 8 hours behind until NTP sets it. The second version writes for
// 6 hours, and the first was said to be free.
func TestABootWithAClockThatIsBehindWrapsUnderNoOlderVersion(t *testing.T) {
	now := time.Now()
	maker := clocktesting.NewFakeClock(now.Add(-24 * time.Hour))
	file := keyfile.At(filepath.Join(plugintest.Folder(t), "keys"), keyfile.WithClock(maker))
	first, err := file.Create(t.Context())
	require.NoError(t, err)
	maker.SetTime(now.Add(-6 * time.Hour))
	second, err := file.Rotate(t.Context())
	require.NoError(t, err)

	config := keyfile.Config()
	config.HoldDown = 10 * time.Minute
	config.Clock = clocktesting.NewFakeClock(now.Add(-8 * time.Hour))
	k := well(t, file, patient(config))
	sealed, err := k.Encrypt(t.Context(), "", []byte("0123456789abcdef0123456789abcdef"))
	require.NoError(t, err)
	require.Equal(t, second.KeyID, sealed.KeyID)
	_, err = keyfile.At(file.Path()).Destroy(t.Context(), first.ID)
	require.NoError(t, err)
	_, err = k.Decrypt(t.Context(), "", sealed)
	require.NoError(t, err)
}
