package keyfile

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// newRing has so many keys, of which the last one writes.
func ringOf(t testing.TB, count int) *ring {
	t.Helper()
	keys := make([]key, count)
	for i := range keys {
		var err error
		keys[i], err = newKey(noon.Add(time.Duration(i)*time.Hour), rand.Reader)
		require.NoError(t, err)
	}
	return newRing(keys[count-1].id, keys...)
}

func encoded(t testing.TB, r *ring) []byte {
	t.Helper()
	data, err := encode(r)
	require.NoError(t, err)
	return data
}

func requireSameKeys(t *testing.T, want, got *ring) {
	t.Helper()
	require.NoError(t, want.HasAll(got.Ring))
	require.NoError(t, got.HasAll(want.Ring))
	require.Equal(t, want.Writes, got.Writes)
	require.Equal(t, want.infos(), got.infos())
	require.Equal(t, want.Destroyed, got.Destroyed)
}

func TestAFileReadsBackAsItWasWritten(t *testing.T) {
	for _, count := range []int{1, 2, 10, 300} {
		ring := ringOf(t, count)
		got, err := decode(encoded(t, ring))
		require.NoError(t, err)
		requireSameKeys(t, ring, got)
	}
	had := ringOf(t, 5)
	had = &ring{Ring: had.Without(had.Keys[3]).Without(had.Keys[0])}
	again, err := decode(encoded(t, had))
	require.NoError(t, err)
	requireSameKeys(t, had, again)
	require.Len(t, again.Destroyed, 2)
	staged := ringOf(t, 3)
	staged = newRing(staged.Keys[0].id, staged.Keys...)
	got, err := decode(encoded(t, staged))
	require.NoError(t, err)
	requireSameKeys(t, staged, got)
}

func TestTheLargestFileIsWithinTheSizeLimit(t *testing.T) {
	ring := ringOf(t, maxVersions)
	for i := range ring.Keys {
		ring.Keys[i].formerly = fmt.Sprintf("%d.%s", maxVersions, ring.Keys[i].id)
		ring.Destroyed = append(ring.Destroyed, fmt.Sprintf("%032x", i))
	}
	data := encoded(t, ring)
	require.Less(t, len(data), keptfile.MaxSize)
	_, err := decode(data)
	require.NoError(t, err)
	_, err = decode(encoded(t, ringOf(t, maxVersions+1)))
	require.ErrorContains(t, err, "10001 versions")
}

// What either format holds stays readable, and what its keys wrapped too. What format 1 has is
// written anew as format 2 has it.
func TestTheFormatsStayReadable(t *testing.T) {
	for _, name := range []string{"v1", "v2"} {
		data, err := os.ReadFile("testdata/" + name + ".json")
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "kek.json")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		if name == "v1" {
			ring, err := decode(data)
			require.NoError(t, err)
			data = encoded(t, ring)
			want, err := os.ReadFile("testdata/v1-as-v2.json")
			require.NoError(t, err)
			require.Equal(t, string(want), string(data))
		}
		again, err := decode(data)
		require.NoError(t, err)
		require.Equal(t, string(data), string(encoded(t, again)))

		session, err := At(path).Open(t.Context())
		require.NoError(t, err)
		versions, err := session.Versions(t.Context())
		require.NoError(t, err)
		byKeyID := map[string]kmsplugin.Version{}
		for _, v := range versions.All {
			for _, keyID := range append(v.Formerly, v.KeyID()) {
				byKeyID[keyID] = v
			}
		}
		var wrapped []struct {
			KeyID      string
			Ciphertext []byte
			Plaintext  string
		}
		raw, err := os.ReadFile("testdata/" + name + "-wrapped.json")
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &wrapped))
		require.Len(t, wrapped, 2)
		for _, w := range wrapped {
			require.Contains(t, byKeyID, w.KeyID)
			plaintext, err := session.Unwrap(t.Context(), byKeyID[w.KeyID], w.Ciphertext, []byte(w.KeyID))
			require.NoError(t, err)
			require.Equal(t, w.Plaintext, string(plaintext))
		}
	}
}

func TestEveryTruncationIsDamage(t *testing.T) {
	data := encoded(t, ringOf(t, 3))
	for length := range data {
		_, err := decode(data[:length])
		require.Error(t, err, "the first %d of %d bytes", length, len(data))
	}
}

func TestEveryFlippedBitIsDamage(t *testing.T) {
	data := encoded(t, ringOf(t, 2))
	for i := range data {
		for bit := range 8 {
			damaged := bytes.Clone(data)
			damaged[i] ^= 1 << bit
			_, err := decode(damaged)
			require.Error(t, err, "byte %d (%q became %q)", i, data[i], damaged[i])
		}
	}
}

func TestDamageSaysWhatIsWrongAndNeverTheKey(t *testing.T) {
	secret, err := kek.New(domain, recognisable)
	require.NoError(t, err)
	zeros := strings.Repeat("0", 32)
	sound := string(encoded(t, newRing(zeros, key{id: zeros, created: noon, kek: secret})))
	const kek = `"MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0dXY="`
	made := func(version int, writes string, keys ...string) string {
		var c content
		require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{"writes":%q,"keys":[%s]}`, writes, strings.Join(keys, ",")), &c))
		data, err := c.encode(version)
		require.NoError(t, err)
		return string(data)
	}
	without := func(version int, writes, destroyed string) string {
		name := `"id":"` + zeros + `"`
		if version == 1 {
			name = `"keyID":"1.` + zeros + `"`
		}
		var c content
		require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{"writes":%q,"keys":[{%s,"created":"2026-01-31T12:00:00Z","kek":%s}],"destroyed":%s}`, writes, name, kek, destroyed), &c))
		data, err := c.encode(version)
		require.NoError(t, err)
		return string(data)
	}
	one := func(fields string) string {
		return `{` + fields + `,"created":"2026-01-31T12:00:00Z","kek":` + kek + `}`
	}
	id := func(id string) string { return one(`"id":"` + id + `"`) }
	keyID := func(keyID string) string { return one(`"keyID":"` + keyID + `"`) }
	for name, test := range map[string]struct{ data, problem string }{
		"empty":              {"", "empty"},
		"not JSON":           {"key: value", "not the JSON"},
		"other JSON":         {`{"kind":"EncryptionConfiguration"}`, "some other program's file"},
		"null":               {"null", "some other program's file"},
		"newer":              {strings.Replace(sound, `"version": 2`, `"version": 3`, 1), "use the program that wrote it"},
		"of no version":      {strings.Replace(sound, `"version": 2`, `"version": 0`, 1), "use the program that wrote it"},
		"kinds":              {strings.Replace(sound, `"keys": [`, `"keys": 7, "x": [`, 1), "wrong kind"},
		"key as a number":    {strings.Replace(sound, kek, "123456789", 1), "wrong kind"},
		"not base64":         {strings.Replace(sound, "MDEy", "MD.y", 1), "wrong kind"},
		"another key":        {strings.Replace(sound, "MDEy", "MDEx", 1), "checksum"},
		"another checksum":   {strings.Replace(sound, "sha256:", "sha256:0", 1), "checksum"},
		"another writes":     {strings.Replace(sound, `"writes": "0`, `"writes": "1`, 1), "checksum"},
		"no key":             {made(2, zeros), "0 versions"},
		"short key":          {made(2, zeros, strings.Replace(id(zeros), kek, `"MDEyMzQ1"`, 1)), "has 6 bytes"},
		"short id":           {made(2, "00", id("00")), "32 hexadecimal digits"},
		"upper-case id":      {made(2, zeros, id(strings.Repeat("A", 32))), "32 hexadecimal digits"},
		"nobody writes":      {made(2, "", id(zeros)), "which is to write"},
		"another writes yet": {made(2, strings.Repeat("1", 32), id(zeros)), "which is to write"},
		"the same id twice":  {made(2, zeros, id(zeros), id(zeros)), "two keys of one id"},
		"another order":      {made(2, zeros, id(strings.Repeat("1", 32)), id(zeros)), "order of their age"},
		"not in UTC":         {made(2, zeros, strings.Replace(id(zeros), "12:00:00Z", "12:00:00+01:00", 1)), "not created in UTC"},
		"key_id in 2":        {made(2, zeros, one(`"id":"`+zeros+`","keyID":"1.`+zeros+`"`)), "no key_ids"},
		"formerly another":   {made(2, zeros, one(`"id":"`+zeros+`","formerly":"1.`+strings.Repeat("1", 32)+`"`)), "was not formerly"},
		"formerly nothing":   {made(2, zeros, one(`"id":"`+zeros+`","formerly":"x.`+zeros+`"`)), "was not formerly"},
		"1: second version":  {made(1, "", keyID("2."+zeros)), "not that of version 1"},
		"1: short key_id":    {made(1, "", keyID("1.00")), "32 hexadecimal digits"},
		"1: upper-case":      {made(1, "", keyID("1."+strings.Repeat("A", 32))), "32 hexadecimal digits"},
		"1: a long version":  {made(1, "", keyID("01."+zeros)), "32 hexadecimal digits"},
		"1: an id":           {made(1, "", one(`"id":"`+zeros+`","keyID":"1.`+zeros+`"`)), "no ids"},
		"1: writes":          {made(1, zeros, keyID("1."+zeros)), "does not say which"},
		"1: destroyed":       {without(1, "", `["`+strings.Repeat("1", 32)+`"]`), "does not say what was destroyed"},
		"has what is not":    {without(2, zeros, `["`+zeros+`"]`), "says that it was destroyed"},
		"destroyed twice":    {without(2, zeros, `["`+strings.Repeat("1", 32)+`","`+strings.Repeat("1", 32)+`"]`), "not in order"},
		"destroyed nothing":  {without(2, zeros, `[""]`), "32 hexadecimal digits"},
		"reformatted":        {strings.ReplaceAll(sound, "  ", "\t"), "reformatted"},
		"field added":        {strings.Replace(sound, `"version": 2,`, `"version": 2, "note": "mine",`, 1), "fields added"},
		"field twice":        {strings.Replace(sound, `"version": 2,`, `"version": 2, "version": 2,`, 1), "fields added"},
		"more behind it":     {sound + " ", "reformatted"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode([]byte(test.data))
			require.ErrorContains(t, err, test.problem)
			requireNoKey(t, err.Error())
		})
	}
}

func TestADateThatJSONCannotHoldIsAnError(t *testing.T) {
	ring := ringOf(t, 1)
	ring.Keys[0].created = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := encode(ring)
	require.ErrorContains(t, err, "clock")
}

func TestIDsAreNeverTheSameAndSayNothingOfTheKey(t *testing.T) {
	seen := map[string]bool{}
	for range 10_000 {
		k, err := newKey(noon, rand.Reader)
		require.NoError(t, err)
		require.False(t, seen[k.id])
		seen[k.id] = true
	}
	// The same id bytes with other key bytes after them: the id is drawn before the
	// key, and on its own.
	random := bytes.Repeat([]byte{7}, 16)
	a, err := newKey(noon, bytes.NewReader(append(bytes.Clone(random), bytes.Repeat([]byte{1}, kek.Size)...)))
	require.NoError(t, err)
	b, err := newKey(noon, bytes.NewReader(append(bytes.Clone(random), bytes.Repeat([]byte{2}, kek.Size)...)))
	require.NoError(t, err)
	require.Equal(t, a.Version().KeyID(), b.Version().KeyID())
	require.False(t, a.kek.Equal(b.kek))
}

func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, ringOf(f, 1)))
	f.Add(encoded(f, ringOf(f, 3)))
	files, err := filepath.Glob("testdata/v*.json")
	require.NoError(f, err)
	require.Len(f, files, 5)
	for _, name := range files {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"format":"atrest-keyfile","version":1,"checksum":"","keys":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		ring, err := decode(data)
		if err != nil {
			return
		}
		as2 := encoded(t, ring)
		if bytes.Contains(data, []byte(`"version": 2`)) {
			require.Equal(t, string(data), string(as2), "what is read is what would be written")
		}
		again, err := decode(as2)
		require.NoError(t, err)
		requireSameKeys(t, ring, again)
	})
}
