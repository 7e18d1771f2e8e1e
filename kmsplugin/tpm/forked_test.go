package tpm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// forked are the files of two nodes that were both rotated, and what each has wrapped then.
func forked(t *testing.T, one, two *swtpmtest.TPM) (first, second *tpm.Store, recoveryKey string, wrapped []sealed) {
	t.Helper()
	first, recoveryKey = created(t, one, "")
	second = store(t, two, "")
	_, err := second.Recover(t.Context(), recoveryKey, copied(t, first))
	require.NoError(t, err)
	for _, s := range []*tpm.Store{first, second} {
		_, err := s.Rotate(t.Context())
		require.NoError(t, err)
		wrapped = append(wrapped, wrap(t, s))
	}
	return first, second, recoveryKey, wrapped
}

// requireServed: a plugin that serves and one that starts read all.
func requireServed(t *testing.T, s *tpm.Store, session kmsplugin.Session, wrapped []sealed) {
	t.Helper()
	restarted, found, err := looked(t, s)
	require.NoError(t, err)
	require.Len(t, found.All, len(wrapped)+1)
	_, err = session.Versions(t.Context())
	require.NoError(t, err)
	for _, is := range wrapped {
		requireOpens(t, session, is)
		requireOpens(t, restarted, is)
	}
}

// Nobody should, and no file would have all then.
func TestNodesThatWereBothRotatedBringEachOtherTheirKeys(t *testing.T) {
	one, two := swtpmtest.Start(t), swtpmtest.Start(t)
	first, second, recoveryKey, wrapped := forked(t, one, two)
	for i, s := range []*tpm.Store{second, first} {
		other := []*tpm.Store{first, second}[i]
		session, _, err := looked(t, s)
		require.NoError(t, err)
		wrote := read(t, s).Writes
		_, err = s.Recover(t.Context(), recoveryKey, copied(t, other))
		require.NoError(t, err)
		requireServed(t, s, session, wrapped)
		require.Equal(t, wrote, read(t, s).Writes)
	}
	_, err := first.Recover(t.Context(), recoveryKey, "")
	require.NoError(t, err)
}

// What is here alone is opened by this TPM, or by the recovery key if it is of that.
func TestWhatACopyHasNotIsKeptWhateverOpensIt(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*testing.T, *swtpmtest.TPM, *tpm.Store)
		set    func(*tpm.Config)
		says   string
	}{
		"this TPM, and the recovery key is another one": {func(t *testing.T, _ *swtpmtest.TPM, s *tpm.Store) {
			_, _, err := s.Reseal(t.Context(), true)
			require.NoError(t, err)
		}, nothing, ""},
		"the recovery key": {func(t *testing.T, chip *swtpmtest.TPM, _ *tpm.Store) { clearTPM(t, chip) }, nothing, ""},
		"neither": {func(t *testing.T, chip *swtpmtest.TPM, s *tpm.Store) {
			_, _, err := s.Reseal(t.Context(), true)
			require.NoError(t, err)
			clearTPM(t, chip)
		}, adopts, "is here and not in the copy, and does not open"},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := swtpmtest.Start(t), swtpmtest.Start(t)
			first, second, recoveryKey, wrapped := forked(t, one, two)
			session, _, err := looked(t, second)
			require.NoError(t, err)
			test.change(t, two, second)
			before := content(t, second)
			_, err = configured(t, two, second.Path(), test.set).Recover(t.Context(), recoveryKey, copied(t, first))
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
				require.Equal(t, before, content(t, second))
				return
			}
			require.NoError(t, err)
			requireServed(t, second, session, wrapped)
		})
	}
}
