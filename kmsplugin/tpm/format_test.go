package tpm_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// goldenPath is a file that was made by a TPM that is no more. There is one of the first format, too.
const (
	goldenPath      = "testdata/v2.json"
	goldenFirstPath = "testdata/v1.json"
)

func TestTheFormatStays(t *testing.T) {
	for _, path := range []string{goldenPath, goldenFirstPath} {
		golden, err := os.ReadFile(path)
		require.NoError(t, err)
		r, err := tpm.Decode(golden)
		require.NoError(t, err)
		again, err := tpm.Encode(r)
		require.NoError(t, err)
		require.Equal(t, string(golden), string(again))
	}
}

func TestAFileOfThePastIsRecovered(t *testing.T) {
	// Their recovery keys protect nothing.
	for of, keyID := range map[string]string{
		"testdata/v1": "d37d41611b011a1467b58f9b52596289792dc31e9c229762db99d1bcfe182f9e",
		"testdata/v2": "ddea96c4cf11b557de9c3ced0296fc17ae3d231a9202716b996c8a3e56a6a467",
	} {
		golden, err := os.ReadFile(of + ".json")
		require.NoError(t, err)
		recoveryKey, err := os.ReadFile(of + "-recovery-key")
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "kek.json")
		require.NoError(t, os.WriteFile(path, golden, 0o600))
		s := configured(t, swtpmtest.Start(t), path, func(config *tpm.Config) {
			config.PCRs, config.Unproven = tpm.NoPCRs, of == "testdata/v1"
		})
		info, err := s.Recover(t.Context(), string(recoveryKey), "")
		require.NoError(t, err)
		require.Equal(t, keyID, info.KeyID)
		_, versions, err := looked(t, s)
		require.NoError(t, err)
		require.Len(t, versions.All, 2)
	}
}

func TestADamagedFileIsTold(t *testing.T) {
	golden, err := os.ReadFile(goldenPath)
	require.NoError(t, err)
	for name, data := range map[string][]byte{
		"empty":          nil,
		"cut":            golden[:len(golden)/2],
		"one byte":       bytes.Replace(golden, []byte(`"private": "`), []byte(`"private": "/`), 1),
		"a field more":   bytes.Replace(golden, []byte(`"writes"`), []byte(`"other": 1, "writes"`), 1),
		"other spaces":   append(bytes.Clone(golden), '\n'),
		"a later format": bytes.Replace(golden, []byte(`"version": 2`), []byte(`"version": 3`), 1),
		"an earlier one": bytes.Replace(golden, []byte(`"version": 2`), []byte(`"version": 1`), 1),
		"a key file":     bytes.Replace(golden, []byte(`atrest-tpm`), []byte(`atrest-keyfile`), 1),
	} {
		path := filepath.Join(t.TempDir(), "kek.json")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		s, err := tpm.New(tpm.Config{File: path})
		require.NoError(t, err)
		_, err = s.List()
		require.ErrorIs(t, err, tpm.ErrDamaged, name)
		require.ErrorContains(t, err, "restore it from a copy")
		_, _, err = s.Create(t.Context(), false)
		require.ErrorIs(t, err, os.ErrExist)
	}
}

// What is sealed under one name must not be taken for what is sealed under another.
func TestKeysThatChangedPlacesAreDamage(t *testing.T) {
	s, recoveryKey := created(t, swtpmtest.Start(t), "")
	_, err := s.Rotate(t.Context())
	require.NoError(t, err)
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	r, err := tpm.Decode(data)
	require.NoError(t, err)
	data, err = tpm.Encode(tpm.Exchange(r))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.Path(), data, 0o600))
	_, versions, err := looked(t, s)
	require.ErrorIs(t, err, tpm.ErrDamaged)
	require.ErrorContains(t, err, "something else")
	require.Empty(t, versions.All)
	_, err = s.Recover(t.Context(), recoveryKey, "")
	require.ErrorIs(t, err, tpm.ErrDamaged)
}

// Somebody writes a file with a KEK of their own under the name of one that is served.
func TestAnotherKEKUnderTheSameNameIsNotTaken(t *testing.T) {
	chip, path := swtpmtest.Start(t), filepath.Join(t.TempDir(), "kek.json")
	made := func(secret byte) *tpm.Store {
		_ = os.Remove(path)
		s, err := tpm.New(tpm.Config{Device: chip.Device(), File: path, Check: 1, Clock: clocktesting.NewFakeClock(time.Unix(1, 0))})
		require.NoError(t, err)
		tpm.SetRandom(s, io.MultiReader(bytes.NewReader(make([]byte, 16)), bytes.NewReader(bytes.Repeat([]byte{secret}, 32))))
		_, _, err = s.Create(t.Context(), false)
		require.NoError(t, err)
		return s
	}
	s := made(1)
	was := wrap(t, s)
	session, _, err := looked(t, s)
	require.NoError(t, err)
	made(2)
	requireTrouble(t, session, was, kmsplugin.ErrUnavailable, "another key than the one that was served")
}

func TestASealedKeyThatWasChangedIsDamage(t *testing.T) {
	s, _ := created(t, swtpmtest.Start(t), "")
	sound, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	for _, pick := range []func(public, private []byte) []byte{
		func(public, _ []byte) []byte { return public }, func(_, private []byte) []byte { return private },
	} {
		for at := range 60 {
			r, err := tpm.Decode(sound)
			require.NoError(t, err)
			part := pick(tpm.Parts(r))
			part[at%len(part)] ^= 0x41
			data, err := tpm.Encode(r)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(s.Path(), data, 0o600))
			_, versions, err := looked(t, s)
			require.Error(t, err, at)
			require.Empty(t, versions.All)
		}
	}
}

// A file that is written is read again.
func TestAFileIsNeverLargerThanWhatIsRead(t *testing.T) {
	s, recoveryKey := created(t, swtpmtest.Start(t), "sha256:0,1,2,3,4,5,6,7")
	data, err := tpm.Encode(tpm.Filled(read(t, s), 1000, 64, 250))
	require.NoError(t, err, "as many as there may be, with what the widest bank has")
	require.LessOrEqual(t, len(data), keptfile.MaxSize)
	_, err = tpm.Encode(tpm.Filled(read(t, s), 1000, 64, 1024))
	require.ErrorIs(t, err, tpm.ErrFull)

	r := read(t, s)
	for n := range 1001 {
		r.Destroyed = append(r.Destroyed, fmt.Sprintf("%032x", n))
	}
	_, err = tpm.Encode(r)
	require.ErrorIs(t, err, tpm.ErrFull)
	before := content(t, s)
	_, err = s.Recover(t.Context(), recoveryKey, unchecked(t, r))
	require.ErrorIs(t, err, tpm.ErrDamaged)
	require.ErrorContains(t, err, "1001 versions were destroyed")
	require.Equal(t, before, content(t, s))
}

// unchecked is a file of its own that this program would not write.
func unchecked(t *testing.T, r *tpm.Ring) (path string) {
	t.Helper()
	data, err := tpm.EncodeUnchecked(r)
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "unchecked.json")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func FuzzDecode(f *testing.F) {
	golden, err := os.ReadFile(goldenPath)
	require.NoError(f, err)
	f.Add(golden)
	first, err := os.ReadFile(goldenFirstPath)
	require.NoError(f, err)
	f.Add(first)
	f.Add([]byte(strings.Replace(string(golden), "sha256:7", "sha256:8", 1)))
	f.Add([]byte(`{"format":"atrest-tpm","version":1}`))
	f.Add([]byte(base64.StdEncoding.EncodeToString(golden)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := tpm.Decode(data)
		if err != nil {
			return
		}
		again, err := tpm.Encode(r)
		require.NoError(t, err)
		require.Equal(t, data, again)
	})
}

// Whatever somebody writes as the public part of a sealed key is sent to the TPM or refused.
func FuzzPublicPart(f *testing.F) {
	golden, err := os.ReadFile(goldenPath)
	require.NoError(f, err)
	r, err := tpm.Decode(golden)
	require.NoError(f, err)
	public, _ := tpm.Parts(r)
	f.Add(public)
	for n := range public {
		f.Add(public[:n])
		changed := bytes.Clone(public)
		changed[n] ^= 0xff
		f.Add(append(changed, 0))
	}
	f.Fuzz(func(t *testing.T, public []byte) { require.Error(t, tpm.UnsealWithoutTPM(public)) })
}
