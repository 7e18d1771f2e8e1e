package atrest_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/reload"
)

func reloadOf(e *atrest.Encryption) healthz.Reload { return *e.Status().Reload }

// uses reports whether a content is in use and nothing else is tried.
func uses(e *atrest.Encryption, content string) bool {
	s := e.Status()
	return s.Reload != nil && s.Reload.Outcome == "ok" && s.ConfigHash == reload.Hash([]byte(content))
}

// hanging is a file that writes with a plugin that never answers. It is waited
// for when that returns.
func hanging(t *testing.T, e *atrest.Encryption, put func(string)) (content string, plugin *connections) {
	p := faultplugin.New(t)
	p.Set(hang)
	plugin = serveCounted(t, p)
	content = fileOf(rule("secrets", kms("hung", plugin.endpoint, patient), identity))
	put(content)
	eventually(t, func() bool { return p.Calls().Status > 0 })
	return content, plugin
}

func TestACorrectedFileTakesEffectWhileAPluginIsWaitedFor(t *testing.T) {
	p := faultplugin.Start(t)
	first := configuration(p, "secrets")
	path, put := place(t, first)
	e := start(t, optionsFor(path))
	follow(t, e)
	mistaken, hung := hanging(t, e, put)
	s := getStatus(t, e)
	require.Equal(t, reload.Hash([]byte(first)), s.ConfigHash)
	require.Equal(t, healthz.Reload{LoadedAt: s.Reload.LoadedAt, Outcome: "building", BuildingHash: reload.Hash([]byte(mistaken))}, *s.Reload)
	require.Len(t, s.Providers, 1)
	require.Equal(t, healthz.Ready, s.Providers[0].State)
	require.Contains(t, stored(t, e, secrets), "k8s:enc:kms:v2:test:", "what is in use stays in use")

	corrected := configuration(p, "secrets, configmaps")
	put(corrected)
	eventually(t, func() bool { return uses(e, corrected) })
	require.Contains(t, stored(t, e, configmaps), "k8s:enc:kms:v2:test:")
	hung.requireClosed(t)
	require.LessOrEqual(t, p.Calls().Encrypt, 2, "it had to show that it still wraps")
}

func TestTheFilePutBackLetsGoOfThePluginThatIsWaitedFor(t *testing.T) {
	p := faultplugin.Start(t)
	first := configuration(p, "secrets")
	path, put := place(t, first)
	e, log := logged(t, optionsFor(path))
	follow(t, e)
	loaded := e.Status()
	_, hung := hanging(t, e, put)
	put(first)
	eventually(t, func() bool { return uses(e, first) })
	hung.requireClosed(t)
	eventually(t, func() bool {
		return strings.Contains(log(), "The file holds the encryption configuration in use again")
	})
	require.NotContains(t, log(), "Kept the encryption configuration in use")
	require.NotContains(t, log(), "Reloaded")
	require.Equal(t, loaded.ConfigHash, e.Status().ConfigHash)
	require.Contains(t, stored(t, e, secrets), "k8s:enc:kms:v2:test:")
}

func TestAFileThatIsGoneAgainLetsGoOfThePluginThatItMadeWaitFor(t *testing.T) {
	path, put := place(t, fileOf(rule("secrets", aesgcm)))
	o := optionsFor(path)
	clock := fakeTime(o)
	e := start(t, o)
	follow(t, e)
	require.NoError(t, os.Remove(path))
	stepUntil(t, clock, func() bool { return e.Status().Reload != nil && reloadOf(e).Outcome == "failed" })
	since := reloadOf(e).FailedSince

	p := faultplugin.New(t)
	p.Set(hang)
	hung := serveCounted(t, p)
	put(fileOf(rule("secrets", kms("hung", hung.endpoint, patient))))
	stepUntil(t, clock, func() bool { return p.Calls().Status > 0 })
	require.NoError(t, os.Remove(path))
	stepUntil(t, clock, func() bool { return reloadOf(e).BuildingHash == "" })
	hung.requireClosed(t)
	require.True(t, reloadOf(e).FailedSince.After(since), "it is another failure")
}

func TestRunThatEndsWhileAPluginIsWaitedForLetsGoOfIt(t *testing.T) {
	p := faultplugin.Start(t)
	path, put := place(t, configuration(p, "secrets"))
	e := start(t, optionsFor(path))
	stop := follow(t, e)
	_, hung := hanging(t, e, put)
	stop()
	hung.requireClosed(t)
	require.Nil(t, e.Status().Reload, "nobody follows it")
	require.Contains(t, stored(t, e, secrets), "k8s:enc:kms:v2:test:", "it does not end what is in use")
}

// trying is an Encryption that was given a file to write with one plugin that is
// well and one that is not: it tries that again and again.
type trying struct {
	*atrest.Encryption
	first, content string
	put            func(string)
	stop           func()
	log            func() string
	clock          *testingclock.FakeClock
	// well and sick are the plugins, and held who is connected to the first.
	well, sick *faultplugin.Plugin
	held       *connections
	step       func(holds func() bool)
}

func newTrying(t *testing.T) *trying {
	y := &trying{well: faultplugin.New(t), sick: faultplugin.Start(t), first: fileOf(rule("secrets", aesgcm))}
	y.sick.Set(func(b *faultplugin.Behaviour) { b.Healthz = "the KMS is away" })
	y.held = serveCounted(t, y.well)
	y.content = fileOf(rule("secrets", kms("well", y.held.endpoint)), rule("configmaps", kms("sick", y.sick.Endpoint(), patient)))
	path, put := place(t, y.first)
	o := optionsFor(path)
	y.clock = fakeTime(o)
	y.Encryption, y.log = logged(t, o)
	y.put = put
	y.stop = follow(t, y.Encryption)
	y.step = func(holds func() bool) { t.Helper(); stepUntil(t, y.clock, holds) }
	y.try(3)
	return y
}

// try puts the content, if it is not there, and waits for some tries of it.
func (y *trying) try(times int) {
	y.put(y.content)
	tries := y.sick.Calls().Status + times
	y.step(func() bool { return y.sick.Calls().Status >= tries })
}

func TestATryIsHeldForTheNextAndCostsAPluginThatIsWellNoOtherDEK(t *testing.T) {
	y := newTrying(t)
	require.Equal(t, healthz.Failed, reloadOf(y.Encryption).Outcome)
	require.True(t, reloadOf(y.Encryption).Retrying)
	require.Equal(t, 1, y.well.Calls().Encrypt)
	require.Contains(t, stored(t, y.Encryption, secrets), "k8s:enc:aesgcm:", "nothing changes of what is in use")

	y.sick.Heal("1")
	y.step(func() bool { return uses(y.Encryption, y.content) })
	require.Equal(t, 1, y.well.Calls().Encrypt, "the DEK of the first try is written with")
	require.Contains(t, stored(t, y.Encryption, secrets), "k8s:enc:kms:v2:well:")
	require.Contains(t, stored(t, y.Encryption, configmaps), "k8s:enc:kms:v2:sick:")
}

func TestATryIsLetGoWhenTheFileIsPutRight(t *testing.T) {
	y := newTrying(t)
	require.EqualValues(t, 1, y.held.open.Load())
	y.put(y.first)
	y.step(func() bool { return uses(y.Encryption, y.first) })
	y.held.requireClosed(t)
	require.Empty(t, reloadOf(y.Encryption).Error)
}

func TestATryIsLetGoWhenAnotherContentTakesEffect(t *testing.T) {
	y := newTrying(t)
	other := fileOf(rule("secrets, configmaps", aesgcm))
	y.put(other)
	y.step(func() bool { return uses(y.Encryption, other) })
	y.held.requireClosed(t)
}

func TestATryIsLetGoWhenAnotherContentCannotBeUsed(t *testing.T) {
	y := newTrying(t)
	y.put("kind: [")
	y.step(func() bool { return !reloadOf(y.Encryption).Retrying })
	y.held.requireClosed(t)
}

func TestATryIsLetGoWhenTheFileHoldsARefusedContentAgain(t *testing.T) {
	p := faultplugin.Start(t)
	path, put := place(t, configuration(p, "secrets"))
	e := start(t, optionsFor(path))
	follow(t, e)
	put("kind: [")
	eventually(t, func() bool { return e.Status().Reload != nil && reloadOf(e).Outcome == "failed" })
	refused := reloadOf(e)
	_, hung := hanging(t, e, put)
	put("kind: [")
	hung.requireClosed(t)
	eventually(t, func() bool { return reloadOf(e) == refused })
}

func TestATryIsLetGoWhenRunEnds(t *testing.T) {
	y := newTrying(t)
	y.stop()
	y.held.requireClosed(t)
	require.Contains(t, stored(t, y.Encryption, secrets), "k8s:enc:aesgcm:")
}

func TestAFileThatIsTriedAgainStaysFailedMeanwhile(t *testing.T) {
	y := newTrying(t)
	failed := reloadOf(y.Encryption)
	require.Equal(t, healthz.Failed, failed.Outcome)
	require.Equal(t, reload.Hash([]byte(y.content)), failed.FailedHash)
	require.Contains(t, failed.Error, "the KMS is away")
	y.sick.Set(hang)
	y.try(1)
	require.Equal(t, failed, reloadOf(y.Encryption), "it is being built, and that is no news")

	y.put("kind: [")
	y.step(func() bool { return !reloadOf(y.Encryption).Retrying })
	require.NotEqual(t, failed.FailedHash, reloadOf(y.Encryption).FailedHash)
}

// What begins to write does so before it is in use, and what no longer writes
// ends after that: in between there is no moment for a write to fail in.
func TestNoWriteFailsWhileWritersChange(t *testing.T) {
	one, two := faultplugin.Start(t), faultplugin.Start(t)
	first, second := kms("one", one.Endpoint()), kms("two", two.Endpoint())
	contents := []string{fileOf(rule("secrets", first, second)), fileOf(rule("secrets", second, first))}
	path, put := place(t, contents[0])
	o := optionsFor(path)
	clock := fakeTime(o)
	e := start(t, o)
	follow(t, e)

	ctx, stop := context.WithCancel(t.Context())
	var writes atomic.Int64
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for ctx.Err() == nil && writeAndRead(t, e) {
				writes.Add(1)
			}
		})
	}
	const changes = 30
	for i := range changes {
		content := contents[(i+1)%2]
		put(content)
		stepUntil(t, clock, func() bool { return uses(e, content) || t.Failed() })
	}
	stop()
	workers.Wait()
	require.Equal(t, 1, one.Calls().Encrypt, "the DEK that was set aside is written with again")
	require.Equal(t, 1, two.Calls().Encrypt)
	t.Logf("%d writes during %d changes", writes.Load(), changes)
}

func writeAndRead(t *testing.T, e *atrest.Encryption) (ok bool) {
	x := e.ResourceTransformers().TransformerForResource(secrets)
	out, err := x.TransformToStorage(context.Background(), []byte("plain"), at)
	if err != nil || !strings.HasPrefix(string(out), "k8s:enc:kms:v2:") {
		t.Errorf("write: %.30q, %v", out, err)
		return false
	}
	plain, _, err := x.TransformFromStorage(context.Background(), out, value.DefaultContext(at))
	if err != nil || string(plain) != "plain" {
		t.Errorf("read: %q, %v", plain, err)
		return false
	}
	return true
}

// What a plugin says may have the number of a request in it, or the time.
func TestAPluginThatWordsItsTroubleAnewEachTimeIsOneFailure(t *testing.T) {
	y := newTrying(t)
	failed := reloadOf(y.Encryption)
	for n := range 10 {
		y.sick.Set(func(b *faultplugin.Behaviour) { b.Healthz = fmt.Sprint("the KMS is away, request ", n) })
		y.step(func() bool { return strings.Contains(reloadOf(y.Encryption).Error, fmt.Sprint("request ", n)) })
		require.Equal(t, failed.FailedSince, reloadOf(y.Encryption).FailedSince)
	}
	lines := strings.Count(y.log(), "Kept the encryption configuration in use")
	require.LessOrEqual(t, lines, 2+int(y.clock.Since(failed.FailedSince)/time.Minute))
}
