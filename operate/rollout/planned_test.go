package rollout

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// fileOf is the file of an apiserver at a stage.
func fileOf(t *testing.T, apiserver string, stage rotation.Stage) []byte {
	t.Helper()
	file, err := edit.Advance([]byte(encryption), rotation.Before, stage, toNew(apiserver)...)
	require.NoError(t, err)
	return file
}

// One apiserver has left the old provider behind, and the state is lost: what its
// file was before is known from that of any other.
func TestAFileOfTheLastStageIsKnownByThatOfAnother(t *testing.T) {
	want, err := planned(map[string][]byte{"cp-1": []byte(encryption)}, toNew, "")
	require.NoError(t, err)
	for i, stage := range rotation.Stages[:3] {
		again, err := planned(map[string][]byte{"cp-1": fileOf(t, "cp-1", rotation.Removed), "cp-2": fileOf(t, "cp-2", stage)}, toNew, copies(t.TempDir()))
		require.NoError(t, err, stage)
		require.Equal(t, want["cp-1"][1:], again["cp-1"][1:], stage)
		file := fileOf(t, "cp-2", stage)
		hashes, err := edit.Hashes(file)
		require.NoError(t, err)
		require.Equal(t, hashes[0], again["cp-2"][i])
	}
}

func TestAFileOfTheLastStageIsKnownByItsCopy(t *testing.T) {
	kept := copies(t.TempDir())
	file := map[string][]byte{"cp-1": fileOf(t, "cp-1", rotation.Removed)}
	require.NoError(t, kept.keep(rotation.Before, "cp-1", []byte(encryption)))
	want, err := plannedHashes([]byte(encryption), toNew("cp-1"))
	require.NoError(t, err)
	again, err := planned(file, toNew, kept)
	require.NoError(t, err)
	require.Equal(t, want, again["cp-1"])

	another := strings.Replace(encryption, "secrets", "configmaps", 1)
	require.NoError(t, os.WriteFile(kept.path(rotation.Before, "cp-1"), []byte(another), 0o600))
	_, err = planned(file, toNew, kept)
	require.ErrorContains(t, err, "configuration of cp-1: ", "the copy is of another rotation")
}

// An apiserver came instead of another, with the file that is in effect.
func TestAFileOfTheLastStageIsKnownByTheCopyOfAnother(t *testing.T) {
	kept := copies(t.TempDir())
	require.NoError(t, kept.keep(rotation.Before, "cp-9", []byte(encryption)))
	want, err := plannedHashes([]byte(encryption), toNew("cp-1"))
	require.NoError(t, err)
	again, err := planned(map[string][]byte{"cp-1": fileOf(t, "cp-1", rotation.Removed)}, toNew, kept)
	require.NoError(t, err)
	require.Equal(t, want, again["cp-1"])
}

// A rotation goes back by one the other way, from a file that another wrote in its style.
func TestAFileThatSaysTheSameIsOfAStage(t *testing.T) {
	back := []edit.Replacement{{Old: "new", New: edit.Provider{Name: "old", Endpoint: "unix:///run/old.sock"}}}
	for i, from := range []rotation.Stage{rotation.Swapped, rotation.Added} {
		file := fileOf(t, "cp-1", from)
		hashes, err := courseOf(file, back)
		require.NoError(t, err)
		at := i + 1
		require.Equal(t, hashed.Name(file), hashes[at])
		for j := at; j < len(hashes); j++ {
			later, err := edit.Advance(file, rotation.Stages[at], rotation.Stages[j], back...)
			require.NoError(t, err)
			require.Equal(t, hashed.Name(later), hashes[j], "it is made of the file that is there")
		}
	}
	for _, other := range []edit.Provider{{Name: "old", Endpoint: "unix:///run/other.sock"}, {Name: "old", Endpoint: "unix:///run/old.sock", Timeout: 1}} {
		back[0].New = other
		_, err := courseOf(fileOf(t, "cp-1", rotation.Swapped), back)
		require.ErrorContains(t, err, `provider "old" is there already`, "it is another provider")
	}
}

func TestAFileOfTheLastStageThatNothingTellsOfIsRefused(t *testing.T) {
	files := map[string][]byte{"cp-1": fileOf(t, "cp-1", rotation.Removed)}
	for _, other := range []string{"", strings.Replace(encryption, "[secrets]", "[configmaps]", 1)} {
		if other != "" {
			files["cp-2"] = []byte(other)
		}
		_, err := planned(files, toNew, copies(t.TempDir()))
		require.ErrorContains(t, err, `configuration of cp-1: it has "new" and no longer "old", as after the last step of this rotation, and neither`)
		require.ErrorContains(t, err, `name the folder that the rotation began with, or put "old" back behind "new"; if no apiserver has "old" any more, atrest retire says whether it may go`)
	}

	files["cp-1"] = []byte(strings.Replace(string(fileOf(t, "cp-1", rotation.Swapped)), "secrets", "configmaps", 1))
	_, err := planned(files, toNew, "")
	require.NoError(t, err, "as the error says")
}

func TestAFileThatHasNothingToDoWithTheRotationIsRefused(t *testing.T) {
	for want, file := range map[string]string{
		`there is no KMS provider "old"`:     strings.Replace(encryption, "old,", "other,", 1),
		`provider "new" is there already`:    strings.Replace(encryption, "  - identity", "  - kms: {apiVersion: v2, name: new, endpoint: \"unix:///run/elsewhere.sock\"}\n  - identity", 1),
		"encryption configuration: not YAML": "\t",
	} {
		_, err := planned(map[string][]byte{"cp-1": []byte(file)}, toNew, "")
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "configuration of cp-1: ")
	}
}

// Another name for the plugin that is there is no rotation.
func TestANewProviderNeedsAPluginOfItsOwn(t *testing.T) {
	change := func(endpoint string) []edit.Replacement {
		return []edit.Replacement{{Old: "old", New: edit.Provider{Name: "new", Endpoint: endpoint}}}
	}
	third := strings.Replace(encryption, "  - identity", "  - kms: {apiVersion: v2, name: third, endpoint: \"unix:///run/third.sock\"}\n  - identity", 1)
	for endpoint, other := range map[string]string{"unix:///run/old.sock": "old", "unix:////run/./old.sock": "old", "unix:///run/third.sock": "third"} {
		_, err := plannedHashes([]byte(third), change(endpoint))
		require.ErrorContains(t, err, `the new provider "new" has the endpoint of "`+other+`", and would be the same plugin with the same key: start the new plugin on a socket of its own`)
	}
	two := strings.Replace(encryption, "[secrets]", "[configmaps]", 1)
	two = encryption + strings.ReplaceAll(two[strings.Index(two, "- resources"):], "old", "old-2")
	_, err := plannedHashes([]byte(two), []edit.Replacement{
		{Old: "old", New: edit.Provider{Name: "new", Endpoint: "unix:///run/new.sock"}},
		{Old: "old-2", New: edit.Provider{Name: "new-2", Endpoint: "unix:///run/new.sock"}}})
	require.NoError(t, err, "the new ones may share theirs")
}
