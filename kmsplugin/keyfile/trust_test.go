package keyfile_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// looked is a session whose file was read, and its versions.
func looked(t *testing.T, file *keyfile.File) (kmsplugin.Session, kmsplugin.Versions) {
	t.Helper()
	session := open(file)
	versions, err := session.Versions(t.Context())
	require.NoError(t, err)
	return session, versions
}

// requireTrouble looks again, and finds what is wrong and what it had.
func requireTrouble(t *testing.T, session kmsplugin.Session, had kmsplugin.Versions, problem string) {
	t.Helper()
	versions, err := session.Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, problem)
	require.Equal(t, had, versions)
}

func TestAFileThatCannotBeReliedOnIsTroubleAndIsReadWith(t *testing.T) {
	for name, test := range map[string]struct {
		spoil   func(path string) error
		problem string
	}{
		"gone":         {os.Remove, "restore it from a copy"},
		"cut short":    {func(path string) error { return os.Truncate(path, 100) }, "damaged"},
		"open to all":  {func(path string) error { return os.Chmod(path, 0o644) }, "chmod 600"},
		"another file": {replaceByNew, "no longer has version"},
	} {
		t.Run(name, func(t *testing.T) {
			file, _ := created(t)
			session, had := looked(t, file)
			v := had.All[0]
			sealed, used, err := session.Wrap(t.Context(), v, dek, []byte(v.KeyID()))
			require.NoError(t, err)
			require.Equal(t, v, used)
			whole := content(t, file)
			require.NoError(t, test.spoil(file.Path()))
			requireTrouble(t, session, had, test.problem)
			requireTrouble(t, session, had, file.Path())
			got, err := session.Unwrap(t.Context(), v, sealed, []byte(v.KeyID()))
			require.NoError(t, err)
			require.Equal(t, dek, got)

			require.NoError(t, os.WriteFile(file.Path(), whole, 0o600))
			require.NoError(t, os.Chmod(file.Path(), 0o600))
			again, err := session.Versions(t.Context())
			require.NoError(t, err)
			require.Equal(t, had, again)
		})
	}
}

func TestAModeMadeRightAgainIsNoticed(t *testing.T) {
	file, _ := created(t)
	session, had := looked(t, file)
	require.NoError(t, os.Chmod(file.Path(), 0o644))
	requireTrouble(t, session, had, "chmod 600")
	require.NoError(t, os.Chmod(file.Path(), 0o600))
	_, err := session.Versions(t.Context())
	require.NoError(t, err)
}

func replaceByNew(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	file := keyfile.At(path)
	for range 3 { // longer than the one it replaces
		if _, err := file.Create(context.Background()); err == nil {
			continue
		}
		if _, err := file.Rotate(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

func TestAChangeThatLeavesSizeAndTimeIsNoticed(t *testing.T) {
	for name, replace := range map[string]func(path, other string) error{
		"another file": func(path, other string) error { return os.Rename(other, path) },
		"the same file, written over": func(path, other string) error {
			data, err := os.ReadFile(other)
			if err != nil {
				return err
			}
			return os.WriteFile(path, data, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := time.Now().Truncate(time.Hour).Add(time.Millisecond) // the second is never 0
			fixed := func(f *keyfile.File) *keyfile.File {
				require.NoError(t, os.Chtimes(f.Path(), at, at))
				return f
			}
			file, _ := created(t)
			other, _ := created(t)
			for len(content(t, other)) != len(content(t, file)) {
				other, _ = created(t)
			}
			session, had := looked(t, fixed(file))
			require.NoError(t, replace(file.Path(), other.Path()))
			fixed(file)
			requireTrouble(t, session, had, "no longer has version")
		})
	}
}

func TestAnOlderCopyIsNoticed(t *testing.T) {
	file, _ := created(t)
	older := content(t, file)
	info, err := file.Rotate(t.Context())
	require.NoError(t, err)
	session, had := looked(t, file)
	require.NoError(t, os.WriteFile(file.Path(), older, 0o600))
	requireTrouble(t, session, had, info.ID)
	requireTrouble(t, session, had, "merge")
}
