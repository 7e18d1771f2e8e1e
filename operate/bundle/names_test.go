package bundle

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPartIsNamedAsOnOpenShift(t *testing.T) {
	for name, of := range map[string]struct {
		part Part
		id   KeyID
	}{
		"kms-plugin-secret-vault-approle_secret-id-7":      {Part{Secret, "vault-approle", "secret-id"}, 7},
		"kms-plugin-configmap-vault-ca_ca-bundle.crt-12":   {Part{ConfigMap, "vault-ca", "ca-bundle.crt"}, 12},
		"kms-plugin-secret-a.b_c_d-5-18446744073709551615": {Part{Secret, "a.b", "c_d-5"}, 18446744073709551615},
		"kms-plugin-secret-configmap-x_y-1":                {Part{Secret, "configmap-x", "y"}, 1},
	} {
		require.Equal(t, name, of.part.FileName(of.id))
		part, id, err := ParsePart(name)
		require.NoError(t, err, name)
		require.Equal(t, of.part, part)
		require.Equal(t, of.id, id)
	}
}

// An object's name has no "_", so what is before the first one is the name.
func TestNamesThatLookAlikeStayApart(t *testing.T) {
	one := Part{Secret, "vault-approle", "secret-role-id"}
	two := Part{Secret, "vault-approle-secret", "role-id"}
	require.NotEqual(t, one.FileName(7), two.FileName(7))
	for _, part := range []Part{one, two} {
		got, _, err := ParsePart(part.FileName(7))
		require.NoError(t, err)
		require.Equal(t, part, got)
	}
}

func TestWhatNamesNoPartIsRefused(t *testing.T) {
	long := strings.Repeat("a", 240)
	for _, name := range []string{
		"", "-", "kms-plugin-secret", "kms-plugin-secret-7", "kms-plugin-secret-a-7", "kms-plugin-secret-_b-7", "kms-plugin-secret-a_-7",
		"kms-plugin-secret-a_b", "kms-plugin-secret-a_b-", "kms-plugin-secret-a_b-0", "kms-plugin-secret-a_b-07", "kms-plugin-secret-a_b-+7",
		"kms-plugin-secret-a_b-18446744073709551616", "kms-plugin-secret-A_b-7", "kms-plugin-secret-a._b-7", "kms-plugin-secret-a_b/c-7",
		"kms-plugin-secret-a_..-7", "kms-plugin-secret-a_.-7", "kms-plugin-secret-a_b\n-7", "kms-plugin-volume-a_b-7", "kms-plugin--a_b-7",
		"plugin-secret-a_b-7", "kms-plugin-config-7", "kms-plugin-secret-" + long + "_b-7",
	} {
		_, _, err := ParsePart(name)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestASocketIsNamedByItsKeyID(t *testing.T) {
	require.Equal(t, "kms-7.sock", KeyID(7).Socket())
	id, err := ParseSocket("kms-7.sock")
	require.NoError(t, err)
	require.Equal(t, KeyID(7), id)
	for _, name := range []string{"", "kms-.sock", "kms-0.sock", "kms-07.sock", "kms-7", "7.sock", "kms-7.sock.sock", "kms--7.sock", "kms-7 .sock"} {
		_, err := ParseSocket(name)
		require.Error(t, err, name)
	}
}

// What is read is written as it was, so no two names stand for one part.
func FuzzPart(f *testing.F) {
	f.Add("kms-plugin-secret-vault-approle_secret-role-id-7")
	f.Fuzz(func(t *testing.T, name string) {
		part, id, err := ParsePart(name)
		if err != nil {
			return
		}
		require.Equal(t, name, part.FileName(id))
		require.LessOrEqual(t, len(name), 253)
		require.NotContains(t, name, "/")
	})
}

// What is written is read as it was, so no two parts have one name.
func FuzzPartName(f *testing.F) {
	f.Add("secret", "vault-approle", "secret-role-id", uint64(7))
	f.Fuzz(func(t *testing.T, source, name, key string, n uint64) {
		part, id := Part{Source(source), name, key}, KeyID(n)
		if id == 0 || part.check(id) != nil {
			return
		}
		got, of, err := ParsePart(part.FileName(id))
		require.NoError(t, err)
		require.Equal(t, part, got)
		require.Equal(t, id, of)
	})
}
