package rollout

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

const listed = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"

const aKey = "  - aescbc: {keys: [{name: a, secret: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=}]}\n"

func listing(resources string, providers ...string) string {
	return "- resources: [" + resources + "]\n  providers:\n" + strings.Join(providers, "")
}

const asPlain = "  - identity: {}\n"

// toKind is the target of a kind, at some time.
func toKind(kind config.Kind, names ...string) Target {
	t := Target{Kind: kind, Now: time.Date(2026, 11, 22, 20, 54, 1, 0, time.UTC)}
	if kind.IsKMS() {
		t.Plugins = func(apiserver string) (all []edit.Provider) {
			for _, name := range names {
				all = append(all, edit.Provider{Name: name, Endpoint: "unix:///run/" + apiserver + "/" + name + ".sock"})
			}
			return all
		}
	}
	return t
}

func (t Target) of(test *testing.T, files inMemory, folder *Folder) (Move, error) {
	test.Helper()
	return t.Move(test.Context(), files, slices.Sorted(maps.Keys(files)), folder)
}

// at are the files of all apiservers at a stage of a move.
func (k Move) at(t *testing.T, files inMemory, stages map[string]rotation.Stage) inMemory {
	t.Helper()
	next := maps.Clone(files)
	for apiserver, stage := range stages {
		file, err := edit.Advance([]byte(files[apiserver]), rotation.Before, stage, k.Changes(apiserver)...)
		require.NoError(t, err)
		next[apiserver] = string(file)
	}
	return next
}

// begun is a move with its state in the folder.
func begun(t *testing.T, target Target, files inMemory, folder *Folder) Move {
	t.Helper()
	m, err := target.of(t, files, folder)
	require.NoError(t, err)
	require.True(t, m.Fresh)
	hashes, err := m.hashes(m.bytesOf(files), folder.copies())
	require.NoError(t, err)
	s, err := m.begin(t.Context(), rotation.Plan{Resources: []string{"secrets"}, Configs: hashes, Hold: rotation.DefaultHold, MaxAge: rotation.DefaultMaxAge, RetryAfter: rotation.DefaultRetryAfter}, nil)
	require.NoError(t, err)
	require.NoError(t, folder.save(s))
	return m
}

func (Move) bytesOf(files inMemory) map[string][]byte {
	all := map[string][]byte{}
	for apiserver, file := range files {
		all[apiserver] = []byte(file)
	}
	return all
}

// everywhere is a file of all apiservers.
func everywhere(file string) inMemory { return inMemory{"cp-1": file, "cp-2": file} }

// swapping has the state in the folder be past its first step.
func swapping(t *testing.T, folder *Folder) {
	t.Helper()
	s, _, err := folder.load()
	require.NoError(t, err)
	data, err := s.Encode()
	require.NoError(t, err)
	s, err = rotation.Decode([]byte(strings.Replace(string(data), `"step": "add"`, `"step": "swap"`, 1)))
	require.NoError(t, err)
	require.True(t, s.Move.Begun())
	require.NoError(t, folder.save(s))
}

func TestWhatIsLeftForATarget(t *testing.T) {
	const plugin = "  - kms: {apiVersion: v2, name: old, endpoint: unix:///run/old.sock}\n"
	bKey := strings.ReplaceAll(strings.Replace(aKey, "name: a,", "name: b,", 1), "AQEB", "AgIC")
	secretKey := strings.Replace(bKey, "aescbc", "secretbox", 1)
	const key = "key-20261122-205401"
	for name, c := range map[string]struct {
		file    string
		to      Target
		from    []string
		end     []string
		entries []int // that change
		keyless bool
		local   bool
	}{
		"plain text":               {listing("secrets", asPlain), toKind(config.AESCBC), []string{rotation.Plain}, []string{"aescbc:" + key}, []int{1}, true, true},
		"a key":                    {listing("secrets", aKey, asPlain), toKind(config.AESCBC), []string{"aescbc:a"}, []string{"aescbc:" + key}, []int{1}, true, true},
		"several keys":             {listing("secrets", strings.Replace(aKey, "[{", "[{name: b, secret: AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=}, {", 1)), toKind(config.Secretbox), []string{"aescbc:b", "aescbc:a"}, []string{"secretbox:" + key}, []int{1}, true, true},
		"several entries":          {listing("secrets", aKey) + listing("configmaps", plugin) + listing("pods", secretKey), toKind(config.AESGCM), []string{"aescbc:a", "old", "secretbox:b"}, []string{"aesgcm:" + key}, []int{1, 2, 3}, true, true},
		"one of several":           {listing("secrets", aKey) + listing("events", asPlain), toKind(config.KMSv2, "vault"), []string{"aescbc:a"}, []string{"vault"}, []int{1}, false, false},
		"one that is there":        {listing("configmaps", plugin) + listing("secrets", aKey), toKind(config.KMSv2, "old"), []string{"aescbc:a"}, []string{"old"}, []int{2}, false, false},
		"all to nothing":           {listing("events", asPlain) + listing("secrets", aKey) + listing("pods", plugin), toKind(config.Identity), []string{"aescbc:a", "old"}, []string{rotation.Plain}, []int{2, 3}, true, true},
		"a wildcard":               {listing("events", asPlain) + listing("'*.*'", aKey, asPlain), toKind(config.KMSv1, "vault"), []string{"aescbc:a"}, []string{"vault"}, []int{2}, true, false},
		"several to as many":       {listing("secrets", plugin) + listing("pods", aKey), toKind(config.KMSv2, "v1", "v2"), []string{"old", "aescbc:a"}, []string{"v1", "v2"}, []int{1, 2}, false, false},
		"a key of the same moment": {listing("secrets", strings.Replace(aKey, "name: a", "name: "+key, 1)), toKind(config.AESCBC), []string{"aescbc:" + key}, []string{"aescbc:" + key + "-2"}, []int{1}, true, true},
	} {
		m, err := c.to.of(t, everywhere(listed+c.file), &Folder{Path: t.TempDir()})
		require.NoError(t, err, name)
		require.Equal(t, c.from, m.From, name)
		require.Equal(t, c.end, m.To, name)
		require.Equal(t, [2]bool{c.keyless, c.local}, [2]bool{m.Keyless, m.Local}, name)
		for _, apiserver := range []string{"cp-1", "cp-2"} {
			var entries []int
			for i, change := range m.Changes(apiserver) {
				entries = append(entries, change.Entry)
				require.Equal(t, m.To[min(i, len(m.To)-1)], change.New.Name, name)
			}
			require.Equal(t, c.entries, entries, name)
		}
		if m.Local && m.To[0] != rotation.Plain {
			one, other := m.Changes("cp-1")[0].New.Secret(), m.Changes("cp-2")[0].New.Secret()
			require.Len(t, one, 32)
			require.Equal(t, one, other, "all have one key")
			again, err := c.to.of(t, everywhere(listed+c.file), &Folder{Path: t.TempDir()})
			require.NoError(t, err)
			require.NotEqual(t, one, again.Changes("cp-1")[0].New.Secret(), "each move has a key of its own")
		}
	}
}

func TestWhatCannotBeMovedIsRefused(t *testing.T) {
	other := strings.Replace(aKey, "name: a", "name: other", 1)
	for want, c := range map[string]struct {
		files inMemory
		to    Target
	}{
		"everything is written with it already: vault":    {everywhere(listed + listing("secrets", "  - kms: {apiVersion: v2, name: vault, endpoint: unix:///v.sock}\n")), toKind(config.KMSv2, "vault")},
		"everything is written with it already: identity": {everywhere(listed + listing("secrets", asPlain)), toKind(config.Identity)},
		"identity is written with from now on, and aescbc:a is read with still, which objects may need: what is stored was not looked at: have it rewritten with atrest migrate, see with atrest audit that nothing is left, and take aescbc:a out": {everywhere(listed + listing("secrets", asPlain, aKey)), toKind(config.Identity)},
		"vault, v2 is written with from now on, and aescbc:a, aescbc:other is read with still": {everywhere(listed + listing("secrets", "  - kms: {apiVersion: v2, name: vault, endpoint: unix:///v.sock}\n", aKey) + listing("pods", "  - kms: {apiVersion: v2, name: v2, endpoint: unix:///v2.sock}\n", other, aKey)), toKind(config.KMSv2, "vault", "v2")},
		"cp-1 writes with aescbc:a, and cp-2 with aescbc:other: finish what":                   {inMemory{"cp-1": listed + listing("secrets", aKey), "cp-2": listed + listing("secrets", other)}, toKind(config.Secretbox)},
		"cp-1 writes with aescbc:a, and cp-2 with nothing that is to be left: finish what":     {inMemory{"cp-1": listed + listing("secrets", aKey, asPlain), "cp-2": listed + listing("secrets", asPlain, aKey)}, toKind(config.Secretbox)},
		"2 entries are moved, and a KMS provider is for one entry: name as many":               {everywhere(listed + listing("secrets", aKey) + listing("pods", aKey)), toKind(config.KMSv2, "vault")},
		`encryption provider configuration file "configuration of cp-2": cannot be decoded`:    {inMemory{"cp-1": listed + listing("secrets", aKey), "cp-2": listed + "c2VjcmV0: ["}, toKind(config.Secretbox)},
	} {
		_, err := c.to.of(t, c.files, &Folder{Path: t.TempDir()})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "c2VjcmV0")
		require.NotContains(t, err.Error(), "AQEB")
	}
}

// The key that it was to bring is nowhere.
func TestAMoveOfWhichNothingWasDoneBeginsAnew(t *testing.T) {
	files, folder := everywhere(listed+listing("secrets", asPlain)), &Folder{Path: t.TempDir()}
	first := begun(t, toKind(config.AESGCM), files, folder)
	later := toKind(config.AESGCM)
	later.Now = later.Now.Add(time.Hour)
	again, err := later.of(t, files, folder)
	require.NoError(t, err)
	require.True(t, again.Fresh)
	require.Equal(t, []string{"aesgcm:key-20261122-215401"}, again.To)
	require.NotEqual(t, first.Changes("cp-1")[0].New.Secret(), again.Changes("cp-1")[0].New.Secret())

	other, err := toKind(config.AESCBC).of(t, files, folder)
	require.ErrorIs(t, err, ErrAnother, "of another kind: %v", other.To)
}

func TestAMoveGoesOnWithTheKeyThatIsInAFile(t *testing.T) {
	files := everywhere(listed + listing("secrets", aKey, asPlain) + listing("pods", asPlain) + listing("events", aKey))
	for name, stages := range map[string]map[string]rotation.Stage{
		"one is added":    {"cp-1": rotation.Added},
		"both":            {"cp-1": rotation.Added, "cp-2": rotation.Added},
		"one is swapped":  {"cp-1": rotation.Added, "cp-2": rotation.Swapped},
		"both are":        {"cp-1": rotation.Swapped, "cp-2": rotation.Swapped},
		"one is removed":  {"cp-1": rotation.Removed, "cp-2": rotation.Swapped},
		"both are at end": {"cp-1": rotation.Removed, "cp-2": rotation.Removed},
	} {
		for _, kind := range []config.Kind{config.AESCBC, config.Secretbox} {
			folder := &Folder{Path: t.TempDir()}
			first := begun(t, toKind(kind), files, folder)
			for _, apiserver := range []string{"cp-1", "cp-2"} {
				require.NoError(t, folder.copies().keep(rotation.Before, apiserver, []byte(files[apiserver])))
			}
			later := toKind(kind)
			later.Now = later.Now.Add(time.Hour)
			now := first.at(t, files, stages)
			again, err := later.of(t, now, folder)
			require.NoError(t, err, name)
			require.False(t, again.Fresh)
			require.Equal(t, [2][]string{first.From, first.To}, [2][]string{again.From, again.To}, name)
			require.Equal(t, first.Changes("cp-1")[0].New.Secret(), again.Changes("cp-2")[0].New.Secret(), name)
			for _, stage := range rotation.Stages {
				to := map[string]rotation.Stage{"cp-1": stage, "cp-2": stage}
				require.Equal(t, first.at(t, files, to), again.at(t, files, to), name)
			}
		}
	}
}

func TestAKeyThatIsGoneOrIsAnotherStopsAMove(t *testing.T) {
	files, folder := everywhere(listed+listing("secrets", asPlain)), &Folder{Path: t.TempDir()}
	to := toKind(config.AESCBC)
	first := begun(t, to, files, folder)
	added := first.at(t, files, map[string]rotation.Stage{"cp-1": rotation.Added, "cp-2": rotation.Added})
	elsewhere := begun(t, to, files, &Folder{Path: t.TempDir()}) // has another key of that name
	added["cp-2"] = elsewhere.at(t, files, map[string]rotation.Stage{"cp-2": rotation.Added})["cp-2"]
	_, err := to.of(t, added, folder)
	require.EqualError(t, err, "configurations of cp-1 and cp-2: key aescbc:key-20261122-205401 is not the same in both: see which one was changed")

	swapping(t, folder)
	_, err = to.of(t, files, folder)
	require.EqualError(t, err, "key aescbc:key-20261122-205401 is in no configuration any more, and objects may be stored under it: put back the files that have it")
}

// What another kind of rotation keeps in a folder is not written over.
func TestAMoveLeavesTheStateOfAnotherRotation(t *testing.T) {
	folder := &Folder{Path: t.TempDir()}
	s, err := rotation.NewOnePlugin(rotation.Plan{Resources: []string{"secrets"}, Configs: map[string][]string{"cp-1": {"sha256:1"}}, Hold: 1, MaxAge: 1, RetryAfter: 1}, []string{"old"}, "")
	require.NoError(t, err)
	require.NoError(t, folder.save(s))
	_, err = toKind(config.AESCBC).of(t, everywhere(listed+listing("secrets", asPlain)), folder)
	require.ErrorIs(t, err, ErrAnother)
}

// It is another entry that is read with the old key on and on.
func TestTheLastStageIsThatOfTheEntriesOfAMove(t *testing.T) {
	before := listed + listing("secrets", aKey) + listing("pods", asPlain, aKey)
	m, err := toKind(config.Secretbox).of(t, everywhere(before), &Folder{Path: t.TempDir()})
	require.NoError(t, err)
	for stage, last := range map[rotation.Stage]bool{rotation.Before: false, rotation.Added: false, rotation.Swapped: false, rotation.Removed: true} {
		at := m.at(t, everywhere(before), map[string]rotation.Stage{"cp-1": stage})
		require.Equal(t, last, isLast([]byte(at["cp-1"]), m.Changes("cp-1")), stage)
	}
	require.False(t, isLast([]byte(listed+"[]\n"), m.Changes("cp-1")), "an entry fewer")
	require.False(t, isLast([]byte("c2VjcmV0: ["), m.Changes("cp-1")))
}
