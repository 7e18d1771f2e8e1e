package faults

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/plugin"
)

var startRows = []row{
	{
		id:     "slow",
		seen:   "`kms-providers: ok`, `kms_operations_latency_seconds`",
		goesOn: "writes; all reads, those of a key that is not in memory after the plugin's answer",
		test:   slow,
	},
	{
		id:     "socket-deleted",
		seen:   "`kms-providers: ok`",
		goesOn: "everything, over the connection that there is",
		test:   socketDeleted,
	},
	{
		id:     "socket-replaced",
		seen:   "`KMS plugin is not healthy`, `KMS plugin is healthy`",
		goesOn: writesEnd + hotReads,
		test:   socketReplaced,
	},
	{
		id:     "restarted",
		seen:   "`kms-providers: ok`",
		goesOn: "everything, after a short wait",
		test:   restarted,
	},
	{
		id:     "absent-at-start",
		seen:   "`not ready, unreachable since`, `there is no data key to write with`, `kms_provider_problem{problem=\"unreachable\"} 1`",
		goesOn: "no writes and no reads with it; other providers",
		test:   absentAtStart,
	},
	{
		id:     "several-absent-at-start",
		seen:   "`not ready, unreachable since` of each",
		goesOn: "no writes and no reads with them; other providers",
		test:   severalAbsentAtStart,
	},
	{
		id:     "reader-absent-at-start",
		seen:   "`kms-providers: ok`, `\"role\":\"read\",\"state\":\"degraded\",\"problem\":\"unreachable\"`",
		goesOn: "writes; reads with other providers",
		test:   readerAbsentAtStart,
	},
	{
		id:     "bad-file-at-start",
		seen:   "the server ends with an error that names file, field and remedy",
		goesOn: "nothing",
		test:   badFileAtStart,
	},
}

func slow(t *trial) {
	p := faultplugin.Start(t)
	cold := elsewhere(t, 1, t.id, p)[0]
	p.Set(func(b *faultplugin.Behaviour) { b.Delay = 50e6 })
	s := start(t, fileOf(rule("secrets", kms(t.id, p, "timeout: 24h"))))
	s.mustRead(secrets, s.mustWrite(secrets))
	s.mustRead(secrets, cold)
	s.idle(healthyPoll)
	s.clock.Step(healthyPoll)
	s.idle(healthyPoll)
	t.look(s)
}

// socketDeleted deletes the socket file under a plugin that goes on.
func socketDeleted(t *trial) {
	p := faultplugin.Start(t)
	cold := elsewhere(t, 1, t.id, p)[0]
	s := start(t, fileOf(rule("secrets", kms(t.id, p))))
	p.RemoveSocket()
	for range 5 {
		s.idle(healthyPoll)
		s.clock.Step(healthyPoll)
	}
	s.idle(healthyPoll)
	s.mustWrite(secrets)
	s.mustRead(secrets, cold)
	t.look(s)
}

// socketReplaced is a plugin that is restarted: another process, on another
// socket of the same name. It is found without a poll.
func socketReplaced(t *trial) {
	p := faultplugin.Start(t)
	cold := elsewhere(t, 1, t.id, p)[0]
	s := start(t, fileOf(rule("secrets", kms(t.id, p))))
	s.idle(healthyPoll)
	p.RemoveSocket()
	p.Kill()
	s.comesTo(func() bool { return !s.healthy() }, "the connection broke")
	s.mustRead(secrets, s.mustWrite(secrets))
	p.Serve()
	s.until(s.healthy, "the new socket is found")
	s.mustRead(secrets, cold)
	t.look(s)
}

// restarted is a plugin that is back before its absence counts: nobody fails, and
// nobody is told.
func restarted(t *trial) {
	p := faultplugin.Start(t)
	cold := elsewhere(t, 20, t.id, p)
	s := start(t, fileOf(rule("secrets", kms(t.id, p))))
	s.idle(healthyPoll)
	p.Kill()
	reads := make(chan error)
	for _, value := range cold {
		go func() { reads <- s.read(secrets, value) }()
	}
	s.until(func() bool { return s.clock.waitingAnew(plugin.Grace, plugin.Grace) }, "its absence is noticed")
	require.True(t, s.healthy())
	s.mustWrite(secrets)
	asked := p.Calls().Status
	p.Serve()
	for range cold {
		require.NoError(t, <-reads)
	}
	// Its return is a wake like others: after some without news it waits for its turn.
	s.comesTo(func() bool { return p.Calls().Status > asked && s.allPaused() }, "it was asked again")
	s.clock.Step(2 * plugin.Grace)
	require.True(t, s.healthy())
	s.mustRead(secrets, s.mustWrite(secrets))
	require.NotContains(t, s.log.String(), "is not healthy")
	t.look(s)
}

func absentAtStart(t *trial) {
	p := faultplugin.New(t)
	s := start(t, fileOf(rule("secrets", kms(t.id, p)), rule("configmaps", identity, kms("also-"+t.id, p))))
	_, err := s.write(secrets)
	require.ErrorIs(t, err, envelope.ErrWritesStopped)
	require.ErrorContains(t, err, "no DEK that the plugin is known to unwrap")
	s.mustRead(configmaps, s.mustWrite(configmaps))
	s.clock.Step(unhealthyPoll)
	s.idle(unhealthyPoll)
	t.look(s)

	p.Serve()
	s.until(s.healthy, "the plugin is found by itself")
	s.mustRead(secrets, s.mustWrite(secrets))
}

// severalAbsentAtStart starts with three plugins that do not answer: they are
// waited for side by side, and the check calls none of them.
func severalAbsentAtStart(t *trial) {
	var plugins []*faultplugin.Plugin
	var rules []string
	for i, resource := range []string{"secrets", "configmaps", "pods"} {
		p := faultplugin.Start(t)
		p.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
		plugins = append(plugins, p)
		rules = append(rules, rule(resource, kms(fmt.Sprintf("%s-%d", t.id, i), p, "timeout: 24h")))
	}
	s := prepare(t, fileOf(rules...))
	started := make(chan struct{})
	go func() { defer close(started); s.start(nil) }()
	asked := func(p *faultplugin.Plugin) bool { return p.Calls().Status == 1 }
	s.until(func() bool { return !slices.ContainsFunc(plugins, not(asked)) }, "each is asked while none has answered")
	for _, p := range plugins {
		p.Kill()
	}
	<-started
	for range 1000 {
		err := s.check()
		for i, p := range plugins {
			require.ErrorContains(t, err, fmt.Sprintf("%s-%d", t.id, i))
			require.Equal(t, faultplugin.Calls{Status: 1}, p.Calls(), "the check calls no plugin")
		}
	}
	t.look(s)
}

func not[T any](f func(T) bool) func(T) bool { return func(v T) bool { return !f(v) } }

func readerAbsentAtStart(t *trial) {
	writer, p := faultplugin.Start(t), faultplugin.Start(t)
	cold := elsewhere(t, 1, t.id, p)[0]
	p.Kill()
	s := start(t, fileOf(rule("secrets", kms("writes-beside-"+t.id, writer), kms(t.id, p))))
	s.mustRead(secrets, s.mustWrite(secrets))
	t.look(s)
	require.ErrorIs(t, s.read(secrets, cold), envelope.ErrUnavailable)

	p.Serve()
	s.until(func() bool { return s.provider(t.id).State == "ready" }, "it is found by itself")
	s.mustRead(secrets, cold)
}

func badFileAtStart(t *trial) {
	t.looked = true
	s := prepare(t, fileOf(rule("secrets", "aescbc: {keys: [{name: short, secret: bm8ga2V5}]}")))
	_, err := s.options(nil).Start(s.ctx, s.name)
	require.ErrorContains(t, err, s.path)
	require.ErrorContains(t, err, "resources[0].providers[0].aescbc.keys[0].secret")
	require.ErrorContains(t, err, "make one with")
	require.NotContains(t, err.Error(), "bm8ga2V5")
	require.NoError(t, os.Remove(s.path))
	_, err = s.options(nil).Start(s.ctx, s.name)
	require.ErrorContains(t, err, s.path)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A start whose context ends does not wait for a plugin that hangs.
func TestAStartEndsWithItsContext(t *testing.T) {
	p := faultplugin.Start(t)
	p.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	s := prepare(t, fileOf(rule("secrets", kms("hangs-at-start", p, "timeout: 24h"))))
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan error)
	go func() {
		var e *atrest.Encryption
		var err error
		if e, err = s.options(nil).Start(ctx, s.name); err == nil {
			e.Close()
		}
		ended <- err
	}()
	s.until(func() bool { return p.Calls().Status == 1 }, "the plugin is asked")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
