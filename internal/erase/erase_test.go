package erase_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/erase"
)

type holder struct{ key []byte }

func TestAKeyIsOverwrittenWhenItsHolderIsGone(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	h := &holder{key: key}
	erase.With(h, key)
	runtime.GC()
	require.Equal(t, byte('0'), key[0], "not while it is in use")
	runtime.KeepAlive(h)

	require.Eventually(t, func() bool {
		runtime.GC()
		return string(key) == string(make([]byte, 32))
	}, 10*time.Second, time.Millisecond)
}

func TestDoRuns(t *testing.T) {
	ran := false
	erase.Do(func() { ran = true })
	require.True(t, ran)
}
