package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// slow is a back end that answers to nothing but the end of a call.
type slow struct {
	kmsplugin.Session
	opens  bool
	opened int
	closed int
}

func (s *slow) Close(context.Context) error { s.closed++; return nil }

func (s *slow) Open(ctx context.Context) (kmsplugin.Session, error) {
	if s.opened++; s.opens {
		return s, nil
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (s *slow) Versions(ctx context.Context) (kmsplugin.Versions, error) {
	<-ctx.Done()
	return kmsplugin.Versions{}, context.Cause(ctx)
}

func TestTheFirstLookWaitsForNobodyForLong(t *testing.T) {
	for _, backend := range []*slow{{}, {opens: true}} {
		looked := &lookedAt{Backend: backend, within: time.Millisecond}
		require.NoError(t, looked.first(t.Context(), errors.New("a mistake")))
		require.Equal(t, 1, backend.opened)
		if backend.opens {
			session, err := looked.Open(t.Context())
			require.NoError(t, err)
			require.Same(t, backend, session)
			require.Equal(t, 1, backend.opened, "what the look has opened is served with")
			_, err = looked.Open(t.Context())
			require.NoError(t, err)
			require.Equal(t, 2, backend.opened, "once")
		}
	}
}

func TestWhatTheFirstLookHasOpenedIsClosedIfNobodyTookIt(t *testing.T) {
	for _, taken := range []bool{false, true} {
		backend := &slow{opens: true}
		looked := &lookedAt{Backend: backend, within: time.Millisecond}
		require.NoError(t, looked.first(t.Context(), errors.New("a mistake")))
		if taken {
			_, err := looked.Open(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, looked.close(t.Context()))
		require.NoError(t, looked.close(t.Context()))
		require.Equal(t, !taken, backend.closed == 1)
	}
}

// The kit would take the session for one of the files that there are by now, and go on with a CA that Vault
// no longer has.
func TestWhatTheFirstLookHasOpenedWithOtherFilesIsNotServedWith(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, []byte("one CA"), 0o600))
	backend := &slow{opens: true}
	looked := &lookedAt{Backend: backend, credentials: []string{file}, within: time.Millisecond}
	require.NoError(t, looked.first(t.Context(), errors.New("a mistake")))
	require.NoError(t, os.WriteFile(file, []byte("another CA"), 0o600))
	_, err := looked.Open(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, backend.opened)
	require.Equal(t, 1, backend.closed)
}
