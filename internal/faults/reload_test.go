package faults

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/reload"
)

var reloadRows = []row{
	{
		id:     "file-bad",
		seen:   "`\"outcome\":\"failed\"`, `automatic_reloads_total{status=\"failure\"} 1`, `Kept the encryption configuration in use`, `kms-providers: ok`",
		goesOn: "everything, with the content in use",
		test:   fileBad,
	},
	{
		id:     "file-half-written",
		seen:   "`\"outcome\":\"ok\"`",
		goesOn: "everything, with the content in use",
		test:   fileHalfWritten,
	},
	{
		id:     "file-deleted",
		seen:   "`\"outcome\":\"failed\"`, `cannot read`, `automatic_reloads_total{status=\"failure\"} 1`",
		goesOn: "everything, with the content in use",
		test:   fileDeleted,
	},
	{
		id:     "file-without-events",
		seen:   "`\"noEvents\":`, `No events from the encryption config's file`",
		goesOn: "everything; a change is found by the poll",
		test:   fileWithoutEvents,
	},
	{
		id:     "new-writer-not-ready",
		seen:   "`\"outcome\":\"failed\"`, `\"retrying\":true`, `is to write and is not healthy`, `automatic_reloads_total{status=\"failure\"} 1`, `kms-providers: ok`",
		goesOn: "everything, with the content in use",
		test:   newWriterNotReady,
	},
	{
		id:     "new-reader-absent",
		seen:   "`\"outcome\":\"ok\"`, `automatic_reloads_total{status=\"success\"} 1`, `\"state\":\"degraded\",\"problem\":\"unreachable\"`",
		goesOn: "writes; reads with other providers",
		test:   newReaderAbsent,
	},
	{
		id:     "provider-removed",
		seen:   "`Removed from the encryption configuration after it was read with`, `reads=2`, `lastReadAgo=`, `no longer read with`",
		goesOn: "writes; reads with the providers that are left",
		test:   providerRemoved,
	},
}

// loaded waits until content is in use.
func (s *server) loaded(content string) {
	s.t.Helper()
	s.passUntil(func() bool { return s.uses(content) }, "the content is taken into use")
}

// uses reports whether content is in use and the controller knows.
func (s *server) uses(content string) bool {
	now := s.Status()
	return now.ConfigHash == hashed.Name([]byte(content)) && now.Reload.Outcome == "ok"
}

func (s *server) failed() bool { return s.Status().Reload.Outcome == "failed" }

// failures are the reloads that failed, as counted.
func (s *server) requireFailures(t *trial, n string) {
	t.Helper()
	require.Contains(t, s.metrics(t, t.id, t.before), `automatic_reloads_total{status="failure"} `+n)
}

func fileBad(t *trial) {
	p := faultplugin.Start(t)
	s := start(t, fileOf(rule("secrets", kms(t.id, p)))).follow()
	s.put(fileOf(rule("secrets, configmaps", kms(t.id, p), "aescbc: {keys: [{name: short, secret: bm8ga2V5}]}")))
	s.passUntil(s.failed, "the content is refused")
	for range 5 {
		s.clock.Step(reloadPoll)
	}
	s.mustRead(secrets, s.mustWrite(secrets))
	require.Equal(t, "plain", string(s.mustWrite(configmaps)))
	t.look(s)

	good := fileOf(rule("secrets, configmaps", kms(t.id, p)))
	s.put(good)
	s.loaded(good)
	s.requireFailures(t, "1")
	require.Equal(t, 1, strings.Count(s.log.String(), "Kept the encryption configuration in use"))
	require.NotContains(t, s.log.String(), "bm8ga2V5")
}

// fileHalfWritten leaves the file open for writing, with a part in it that is
// a configuration of its own: one that encrypts less.
func fileHalfWritten(t *trial) {
	if runtime.GOOS != "linux" {
		t.Skip("no other system tells whether a file is open for writing")
	}
	p := faultplugin.Start(t)
	s := start(t, fileOf(rule("secrets", kms(t.id, p)))).follow()
	inUse := s.Status().ConfigHash
	half := fileOf(rule("configmaps", kms(t.id, p)))
	f, err := os.Create(s.path)
	require.NoError(t, err)
	_, err = f.WriteString(half)
	require.NoError(t, err)
	for passed := time.Duration(0); passed < reloadPoll-time.Second; passed += reload.DefaultQuiet {
		s.looked()
		require.Equal(t, inUse, s.Status().ConfigHash)
		s.clock.Step(reload.DefaultQuiet)
	}
	t.look(s)
	rest := rule("secrets", kms("renamed", p))
	_, err = f.WriteString(rest)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	s.loaded(half + rest)
	require.NotContains(t, s.log.String(), hashed.Name([]byte(half)))
}

func fileDeleted(t *trial) {
	p := faultplugin.Start(t)
	content := fileOf(rule("secrets", kms(t.id, p)))
	s := start(t, content).follow()
	require.NoError(t, os.Remove(s.path))
	s.passUntil(s.failed, "the file is missed")
	s.clock.Step(reloadPoll)
	s.mustRead(secrets, s.mustWrite(secrets))
	t.look(s)

	s.put(content)
	s.passUntil(func() bool { return !s.failed() }, "it is back")
	require.Contains(t, s.log.String(), "holds the encryption configuration in use again")
	s.requireFailures(t, "1")
}

// fileWithoutEvents puts a file in the place of the folder, whose events can
// then no more be had, and the folder back.
func fileWithoutEvents(t *trial) {
	p := faultplugin.Start(t)
	s := prepare(t, fileOf(rule("secrets", kms(t.id, p))))
	folder := filepath.Join(filepath.Dir(s.path), "folder")
	require.NoError(t, os.Mkdir(folder, 0o700))
	inside := filepath.Join(folder, "encryption.yaml")
	require.NoError(t, os.Rename(s.path, inside))
	s.path = inside
	s.start(nil).follow()
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, os.WriteFile(folder, nil, 0o600))
	s.passUntil(func() bool { return s.Status().Reload.NoEvents != "" }, "there are no events")
	s.mustRead(secrets, s.mustWrite(secrets))
	t.look(s)

	require.NoError(t, os.Remove(folder))
	require.NoError(t, os.Mkdir(folder, 0o700))
	again := fileOf(rule("configmaps", kms(t.id, p)))
	s.put(again)
	s.loaded(again)
	require.Empty(t, s.Status().Reload.NoEvents)
}

// newWriterNotReady has a reload wait for a plugin that is absent, and another
// for one that is not well.
func newWriterNotReady(t *trial) {
	p, absent, unwell := faultplugin.Start(t), faultplugin.New(t), faultplugin.Start(t)
	s := start(t, fileOf(rule("secrets", kms(t.id, p)))).follow()
	next := fileOf(rule("secrets", kms("new-writer", absent), kms(t.id, p)))
	s.put(next)
	s.passUntil(s.failed, "the new writer is missed")
	require.Contains(t, string(s.mustWrite(secrets)), ":"+t.id+":")
	t.look(s)
	absent.Serve()
	s.loaded(next)
	require.Contains(t, string(s.mustWrite(secrets)), ":new-writer:")

	unwell.Set(func(b *faultplugin.Behaviour) { b.Healthz = "sealed" })
	next = fileOf(rule("secrets", kms("unwell", unwell), kms(t.id, p)))
	s.put(next)
	s.passUntil(s.failed, "the new writer is not well")
	for range 3 {
		asked := unwell.Calls().Status
		s.passUntil(func() bool { return unwell.Calls().Status > asked }, "it is asked again")
	}
	unwell.Heal("1")
	s.loaded(next)
	s.requireFailures(t, "2")
}

func newReaderAbsent(t *trial) {
	p, absent := faultplugin.Start(t), faultplugin.Start(t)
	cold := elsewhere(t, 1, t.id, absent)[0]
	absent.Kill()
	s := start(t, fileOf(rule("secrets", kms("writes-beside-"+t.id, p)))).follow()
	next := fileOf(rule("secrets", kms("writes-beside-"+t.id, p), kms(t.id, absent)))
	s.put(next)
	s.loaded(next)
	require.NoError(t, s.check())
	t.look(s)
	require.Error(t, s.read(secrets, cold))
	s.mustRead(secrets, s.mustWrite(secrets))
	absent.Serve()
	s.until(func() bool { return s.provider(t.id).State == "ready" }, "it is found by itself")
	s.mustRead(secrets, cold)
}

// providerRemoved reads with a provider that the next content does not have. A
// request that began before ends well nonetheless.
func providerRemoved(t *trial) {
	p, old := faultplugin.Start(t), faultplugin.Start(t)
	values := elsewhere(t, 1, t.id, old)
	s := start(t, fileOf(rule("secrets", kms("writes-beside-"+t.id, p), kms(t.id, old)))).follow()
	s.mustRead(secrets, values[0])
	s.mustRead(secrets, values[0])
	began := s.clock.Now()
	s.clock.Step(time.Second)
	next := fileOf(rule("secrets", kms("writes-beside-"+t.id, p)))
	s.put(next)
	s.loaded(next)
	t.look(s)
	handle := s.ResourceTransformers().TransformerForResource(secrets)
	before := genericapirequest.WithReceivedTimestamp(t.Context(), began)
	after := genericapirequest.WithReceivedTimestamp(t.Context(), s.clock.Now().Add(time.Second))
	_, stale, err := handle.TransformFromStorage(before, values[0], at)
	require.NoError(t, err)
	require.True(t, stale)
	_, _, err = handle.TransformFromStorage(after, values[0], at)
	require.ErrorContains(t, err, "no matching prefix found")
	require.ErrorContains(t, err, t.id)
	s.mustWrite(secrets)
}

// A read that waits for a plugin while a reload removes that plugin ends well.
func TestWhatIsInFlightDoesNotFailBecauseOfAReload(t *testing.T) {
	p, old := faultplugin.Start(t), faultplugin.Start(t)
	cold := elsewhere(t, 1, "old", old)[0]
	s := start(t, fileOf(rule("secrets", kms("new", p), kms("old", old, "timeout: 24h")))).follow()
	before := old.Calls().Decrypt
	old.Set(func(b *faultplugin.Behaviour) { b.Delay = 300 * time.Millisecond })
	read := make(chan error)
	go func() {
		ctx := genericapirequest.WithReceivedTimestamp(context.Background(), s.clock.Now())
		_, _, err := s.ResourceTransformers().TransformerForResource(secrets).TransformFromStorage(ctx, cold, at)
		read <- err
	}()
	s.until(func() bool { return old.Calls().Decrypt > before }, "the read waits for the plugin")
	next := fileOf(rule("secrets", kms("new", p)))
	s.put(next)
	s.loaded(next)
	require.NoError(t, <-read)
}
