package keyfile

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func newKeys(t testing.TB, count int) []key {
	t.Helper()
	keys := make([]key, count)
	for i := range keys {
		var err error
		keys[i], err = newKey(i+1, noon.Add(time.Duration(i)*time.Hour), rand.Reader)
		require.NoError(t, err)
	}
	return keys
}

func encoded(t testing.TB, keys []key) []byte {
	t.Helper()
	data, err := encode(keys)
	require.NoError(t, err)
	return data
}

func requireSameKeys(t *testing.T, want, got []key) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i].id, got[i].id)
		require.True(t, want[i].created.Equal(got[i].created))
		require.True(t, want[i].kek.equal(got[i].kek))
	}
}

func TestAFileReadsBackAsItWasWritten(t *testing.T) {
	for _, count := range []int{1, 2, 10, 300} {
		keys := newKeys(t, count)
		got, err := decode(encoded(t, keys))
		require.NoError(t, err)
		requireSameKeys(t, keys, got)
	}
}

func TestTheLargestFileIsWithinTheSizeLimit(t *testing.T) {
	data := encoded(t, newKeys(t, maxVersions))
	require.Less(t, len(data), maxFileSize)
	_, err := decode(data)
	require.NoError(t, err)
	_, err = decode(encoded(t, newKeys(t, maxVersions+1)))
	require.ErrorContains(t, err, "10001 versions")
}

// The file of format version 1 stays readable, and what its keys wrapped too.
func TestTheFormatStaysReadable(t *testing.T) {
	data, err := os.ReadFile("testdata/v1.json")
	require.NoError(t, err)
	keys, err := decode(data)
	require.NoError(t, err)
	require.Equal(t, data, encoded(t, keys))
	ring := newKeyring(keys)

	var wrapped []struct {
		KeyID      string
		Ciphertext []byte
		Plaintext  string
	}
	raw, err := os.ReadFile("testdata/v1-wrapped.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &wrapped))
	require.Len(t, wrapped, 2)
	for _, w := range wrapped {
		plaintext, err := ring.byID[w.KeyID].open(w.Ciphertext, w.KeyID)
		require.NoError(t, err)
		require.Equal(t, w.Plaintext, string(plaintext))
	}
}

func TestEveryTruncationIsDamage(t *testing.T) {
	data := encoded(t, newKeys(t, 3))
	for length := range data {
		_, err := decode(data[:length])
		require.Error(t, err, "the first %d of %d bytes", length, len(data))
	}
}

func TestEveryFlippedBitIsDamage(t *testing.T) {
	data := encoded(t, newKeys(t, 2))
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
	secret, err := newKEK(recognisable)
	require.NoError(t, err)
	one := []key{{id: "1." + strings.Repeat("0", 32), created: noon, kek: secret}}
	sound := string(encoded(t, one))
	short := func(keys string) string {
		var entries []entry
		require.NoError(t, json.Unmarshal([]byte(keys), &entries))
		sum, err := checksum(entries)
		require.NoError(t, err)
		return fmt.Sprintf(`{"format":"atrest-keyfile","version":1,"checksum":%q,"keys":%s}`, sum, keys)
	}
	kek := `"MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0dXY="`
	for name, test := range map[string]struct{ data, problem string }{
		"empty":             {"", "empty"},
		"not JSON":          {"key: value", "not the JSON"},
		"other JSON":        {`{"kind":"EncryptionConfiguration"}`, "some other program's file"},
		"null":              {"null", "some other program's file"},
		"newer":             {strings.Replace(sound, `"version": 1`, `"version": 2`, 1), "use the program that wrote it"},
		"kinds":             {strings.Replace(sound, `"keys": [`, `"keys": 7, "x": [`, 1), "wrong kind"},
		"key as a number":   {strings.Replace(sound, kek, "123456789", 1), "wrong kind"},
		"not base64":        {strings.Replace(sound, "MDEy", "MD.y", 1), "wrong kind"},
		"another key":       {strings.Replace(sound, "MDEy", "MDEx", 1), "checksum"},
		"another checksum":  {strings.Replace(sound, "sha256:", "sha256:0", 1), "checksum"},
		"no key":            {short(`[]`), "0 versions"},
		"short key":         {short(`[{"keyID":"1.` + strings.Repeat("0", 32) + `","created":"2026-01-31T12:00:00Z","kek":"MDEyMzQ1"}]`), "has 6 bytes"},
		"second version":    {short(`[{"keyID":"2.` + strings.Repeat("0", 32) + `","created":"2026-01-31T12:00:00Z","kek":` + kek + `}]`), "not that of version 1"},
		"short key_id":      {short(`[{"keyID":"1.00","created":"2026-01-31T12:00:00Z","kek":` + kek + `}]`), "32 hexadecimal digits"},
		"upper-case key_id": {short(`[{"keyID":"1.` + strings.Repeat("A", 32) + `","created":"2026-01-31T12:00:00Z","kek":` + kek + `}]`), "32 hexadecimal digits"},
		"reformatted":       {strings.ReplaceAll(sound, "  ", "\t"), "reformatted"},
		"field added":       {strings.Replace(sound, `"version": 1,`, `"version": 1, "note": "mine",`, 1), "fields added"},
		"field twice":       {strings.Replace(sound, `"version": 1,`, `"version": 1, "version": 1,`, 1), "fields added"},
		"more behind it":    {sound + " ", "reformatted"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode([]byte(test.data))
			require.ErrorContains(t, err, test.problem)
			requireNoKey(t, err.Error())
		})
	}
}

func TestADateThatJSONCannotHoldIsAnError(t *testing.T) {
	keys := newKeys(t, 1)
	keys[0].created = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := encode(keys)
	require.ErrorContains(t, err, "clock")
}

func TestKeyIDsAreNeverTheSameAndSayNothingOfTheKey(t *testing.T) {
	seen := map[string]bool{}
	for range 10_000 {
		k, err := newKey(1, noon, rand.Reader)
		require.NoError(t, err)
		require.False(t, seen[k.id])
		seen[k.id] = true
	}
	// The same key_id bytes with other key bytes after them: the id is drawn
	// before the key, and on its own.
	random := bytes.Repeat([]byte{7}, 16)
	a, err := newKey(1, noon, bytes.NewReader(append(bytes.Clone(random), bytes.Repeat([]byte{1}, kekSize)...)))
	require.NoError(t, err)
	b, err := newKey(1, noon, bytes.NewReader(append(bytes.Clone(random), bytes.Repeat([]byte{2}, kekSize)...)))
	require.NoError(t, err)
	require.Equal(t, a.id, b.id)
	require.False(t, a.kek.equal(b.kek))
}

func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, newKeys(f, 1)))
	f.Add(encoded(f, newKeys(f, 3)))
	f.Add([]byte(`{"format":"atrest-keyfile","version":1,"checksum":"","keys":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := decode(data)
		if err != nil {
			return
		}
		require.Equal(t, data, encoded(t, keys), "what is read is what would be written")
	})
}
