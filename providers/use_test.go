package providers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/providers"
)

const otherGCMKey = "aesgcm: {keys: [{name: k1, secret: ZmVkY2JhOTg3NjU0MzIxMA==}]}"

// What the operator has to know when a file is replaced: what is gone that was
// read with.
func TestWhatWasReadWithAndIsGoneIsListed(t *testing.T) {
	p, q := faultplugin.Start(t), faultplugin.Start(t)
	clock := testingclock.NewFakeClock(start)
	inUse := begun(t, fileOf(
		rule("secrets", kms("a", p), kms("a2", p), gcmKey, identity),
		rule("configmaps", otherGCMKey, kms("b", q))), atRest(clock))
	sealed := write(t, inUse, secrets, "v")
	for range 2 {
		read(t, inUse, secrets, sealed)
	}
	for range 3 {
		read(t, inUse, secrets, []byte("plain"))
	}
	other := write(t, inUse, configmaps, "v")
	read(t, inUse, configmaps, other)
	inUse.Tend(clock.Now())
	clock.Step(time.Second)
	inUse.Tend(clock.Now())

	removed := func(content string) []providers.Removal {
		return inUse.Removed(built(t, inUse, content), clock)
	}
	require.Equal(t, []providers.Removal{
		{Name: "identity", Reads: 3, LastRead: start},
		{Name: `aesgcm key "k1"`, Reads: 1, LastRead: start},
		{Name: "kms a, a2", Reads: 2, LastRead: start},
	}, removed(fileOf(rule("secrets", gcmKey))), "of one name there may be two keys; nothing was read with the rest")
	require.Equal(t, []providers.Removal{{Name: "kms a, a2", Reads: 2, LastRead: start}},
		removed(fileOf(rule("pods", identity, otherGCMKey, kms("renamed", p)))), "its values have another name")
	require.Equal(t, []providers.Removal{{Name: "kms a2", Reads: 2, LastRead: start}},
		removed(fileOf(rule("pods", identity, otherGCMKey, kms("a", p)))))
	require.Empty(t, removed(fileOf(rule("pods", identity, otherGCMKey,
		strings.Replace(kms("a", p), "}", ", timeout: 7s}", 1), kms("a2", p)))), "it is there, elsewhere and with another timeout")
}

// A file that changes nothing for a key goes on with its count, also when other
// files were tried between.
func TestReadsOfAKeyAreCountedAcrossFiles(t *testing.T) {
	y := try(t, fileOf(rule("secrets", gcmKey)))
	sealed := write(t, y.inUse, secrets, "v")
	read(t, y.inUse, secrets, sealed)
	away := rule("pods", kms("away", faultplugin.New(t)))
	for range 3 {
		require.Error(t, y.again(fileOf(rule("secrets", otherGCMKey, gcmKey), away)))
	}
	require.NoError(t, y.again(fileOf(rule("secrets", otherGCMKey, gcmKey))))
	former := y.inUse
	y.last.Commit(func() {})
	read(t, former, secrets, sealed)
	y.inUse, y.last = y.last, nil
	read(t, y.inUse, secrets, sealed)
	former.Close()
	require.NoError(t, y.again(fileOf(rule("secrets", otherGCMKey))))
	require.Equal(t, []providers.Removal{{Name: `aesgcm key "k1"`, Reads: 3, LastRead: start}}, y.inUse.Removed(y.last, y.clock))
}
