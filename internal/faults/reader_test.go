package faults

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// readingRows are faults of Decrypt alone, at a plugin that is written with. What
// is about a value and not the plugin leaves the check alone.
var readingRows = []row{
	{
		id:     "decrypt-refused",
		seen:   "`not ready, denied since` once a read has failed, `kms_provider_problem{problem=\"denied\"} 1`, `transformation_operations_total{status=\"PermissionDenied\"} 1`",
		goesOn: writesEnd + hotReads,
		test: decrypting(envelope.ErrUnavailable, envelope.Denied, func(b *faultplugin.Behaviour) {
			b.DecryptErr = status.Error(codes.PermissionDenied, "refused by the test")
		}),
	},
	{
		id:     "decrypt-garbage",
		seen:   "`not ready, answer since` once a read has failed, `there is no data key to write with`, `kms_provider_problem{problem=\"answer\"} 1`, `transformation_operations_total{status=\"unknown-non-grpc\"} 1`",
		goesOn: "no writes; " + hotReads,
		test:   losing(envelope.ErrUnavailable, envelope.BadAnswer, func(b *faultplugin.Behaviour) { b.Garbage = []byte("no key") }),
	},
	{
		id:     "kek-unknown",
		seen:   "`kms-providers: ok`, `transformation_operations_total{status=\"NotFound\"} 1`",
		goesOn: "writes; " + hotReads,
		test:   kekUnknown,
	},
	{
		id:     "kek-lost",
		seen:   "`not ready, error since` once the plugin was tried, `no longer unwraps what it has wrapped`, `there is no data key to write with`, `transformation_operations_total{status=\"NotFound\"} 1`",
		goesOn: "no writes; " + hotReads,
		test:   losing(envelope.ErrUnknownKEK, envelope.Failed, func(b *faultplugin.Behaviour) { b.Forgotten = []string{"1"} }),
	},
	{
		id:     "decrypt-wrong-key",
		seen:   "`not ready, answer since` once the plugin was tried, `no longer gives back the DEK`, `there is no data key to write with`, `transformation_operations_total{status=\"unknown-non-grpc\"} 1`",
		goesOn: "no writes; " + hotReads,
		test:   losing(envelope.ErrCorrupt, envelope.BadAnswer, func(b *faultplugin.Behaviour) { b.Garbage = make([]byte, 32) }),
	},
	{
		id:     "cannot-decrypt",
		seen:   "`not ready, denied since`, `there is no data key to write with`, `does not unwrap what it has wrapped`, `kms_provider_problem{problem=\"denied\"} 1`",
		goesOn: "no writes; reads with other providers",
		test:   cannotDecrypt,
	},
}

// decrypting spoils Decrypt. What failed is not remembered: the same value can
// be read as soon as the plugin is well. The plugin's own problem ends without a
// read too.
func decrypting(cold error, problem envelope.Problem, spoil func(*faultplugin.Behaviour)) func(*trial) {
	return func(t *trial) {
		p := faultplugin.Start(t)
		values := elsewhere(t, 2, t.id, p)
		s := start(t, fileOf(rule("secrets", kms(t.id, p))))
		hot := s.mustWrite(secrets)
		s.mustRead(secrets, values[0])
		s.idle(healthyPoll)
		p.Set(spoil)
		require.ErrorIs(t, s.read(secrets, values[1]), cold)
		s.until(func() bool { return s.provider(t.id).Problem == string(problem) }, "it is tried, and known")
		s.mustRead(secrets, s.mustWrite(secrets))
		s.clock.Step(25 * time.Hour)
		s.allIdle()
		s.mustRead(secrets, values[0])
		s.mustRead(secrets, hot)
		_, err := s.write(secrets)
		require.ErrorIs(t, err, envelope.ErrWritesStopped)
		t.look(s)

		p.Heal("1")
		s.clock.Step(unhealthyPoll)
		s.until(s.healthy, "the plugin is well again, by its own account")
		s.mustRead(secrets, values[1])
		s.mustWrite(secrets)
	}
}

// losing has a plugin no longer unwrap what it has wrapped itself, by its own
// words. It is tried every tenth poll, also if nothing fails.
func losing(cold error, problem envelope.Problem, spoil func(*faultplugin.Behaviour)) func(*trial) {
	return func(t *trial) {
		p := faultplugin.Start(t)
		values := elsewhere(t, 2, t.id, p)
		s := start(t, fileOf(rule("secrets", kms(t.id, p))))
		hot := s.mustWrite(secrets)
		s.mustRead(secrets, values[0])
		s.idle(healthyPoll)
		p.Set(spoil)
		require.ErrorIs(t, s.read(secrets, values[1]), cold)
		s.until(func() bool {
			s.clock.Step(healthyPoll)
			return s.provider(t.id).Problem == string(problem)
		}, "it is tried, and known")
		_, err := s.write(secrets)
		require.ErrorIs(t, err, envelope.ErrWritesStopped)
		s.mustRead(secrets, values[0])
		s.mustRead(secrets, hot)
		t.look(s)

		p.Heal("1")
		s.until(func() bool { s.clock.Step(unhealthyPoll); return s.healthy() }, "it unwraps a fresh DEK")
		s.mustRead(secrets, values[1])
		s.mustWrite(secrets)
		require.True(t, s.stale(secrets, hot), "it can be read nowhere else")
	}
}

// kekUnknown has a plugin forget a KEK that is not the one it works with.
func kekUnknown(t *trial) {
	p := faultplugin.Start(t)
	p.Heal("0")
	values := elsewhere(t, 2, t.id, p)
	p.Heal("1")
	s := start(t, fileOf(rule("secrets", kms(t.id, p))))
	s.mustRead(secrets, values[0])
	s.idle(healthyPoll)
	p.Set(func(b *faultplugin.Behaviour) { b.Forgotten = []string{"0"} })
	require.ErrorIs(t, s.read(secrets, values[1]), envelope.ErrUnknownKEK)
	s.clock.Step(25 * time.Hour)
	s.allIdle()
	s.mustRead(secrets, values[0])
	s.mustWrite(secrets)
	require.True(t, s.healthy())
	t.look(s)

	p.Heal("1")
	s.mustRead(secrets, values[1])
}

// cannotDecrypt is a plugin that does not give back what it was given: what was
// written with it could be read by this process alone.
func cannotDecrypt(t *trial) {
	p := faultplugin.Start(t)
	p.Set(func(b *faultplugin.Behaviour) {
		b.DecryptErr = status.Error(codes.PermissionDenied, "refused by the test")
	})
	s := start(t, fileOf(rule("secrets", kms(t.id, p), identity), rule("configmaps", identity)))
	for range 3 {
		_, err := s.write(secrets)
		require.ErrorIs(t, err, envelope.ErrWritesStopped)
		s.mustRead(configmaps, s.mustWrite(configmaps))
		s.clock.Step(unhealthyPoll)
		s.idle(unhealthyPoll)
	}
	t.look(s)

	p.Heal("1")
	s.clock.Step(unhealthyPoll)
	s.until(s.healthy, "it gives back what it is given")
	s.mustRead(secrets, s.mustWrite(secrets))
}

func readerRows() []row {
	var rows []row
	for _, f := range slices.Concat(faults, statusFaults) {
		goesOn := "writes; " + allReads
		if f.cold != nil {
			goesOn = "writes; " + hotReads
		}
		rows = append(rows, row{
			id:     "reader-" + f.id,
			seen:   fmt.Sprintf("`kms-providers: ok`, `\"role\":\"read\",\"state\":\"degraded\",\"problem\":%q`, `kms_provider_problem{problem=%q} 1`", f.problem, f.problem),
			goesOn: goesOn,
			test:   f.ofAReader,
		})
	}
	return append(rows, row{
		id:     "reader-decrypt-refused",
		seen:   "`kms-providers: ok`, `\"role\":\"read\",\"state\":\"degraded\",\"problem\":\"denied\"` once a read has failed",
		goesOn: "writes; " + hotReads,
		test:   readerRefusesDecrypt,
	}, row{
		id:     "reader-status-refused",
		seen:   "`kms-providers: ok`, `\"role\":\"read\",\"state\":\"ready\"` once Decrypt has succeeded, and degraded before",
		goesOn: "writes; " + allReads,
		test:   readerRefusesStatus,
	})
}

// ofAReader goes through the fault at a plugin that is only read: it is noticed
// without a read, and so is its end, unless Decrypt has failed in between.
func (f fault) ofAReader(t *trial) {
	writer, p := faultplugin.Start(t), faultplugin.Start(t)
	values := elsewhere(t, 2, t.id, p)
	s := start(t, fileOf(rule("secrets", kms("writes-beside-"+t.id, writer), f.provider(t.id, p))))
	s.mustRead(secrets, values[0])
	s.allIdle()
	require.Equal(t, faultplugin.Calls{Status: 3, Encrypt: 2, Decrypt: 3}, p.Calls(), "a reader never asks to encrypt")
	require.EqualValues(t, "ready", s.provider(t.id).State)

	f.spoil(p)
	if !f.byItself {
		s.clock.Step(healthyPoll)
	}
	s.comesTo(func() bool { return s.provider(t.id).Problem == string(f.problem) }, "the problem is noticed")
	require.EqualValues(t, "degraded", s.provider(t.id).State)
	s.allIdle()
	s.clock.Step(25 * time.Hour)
	s.allIdle()
	s.mustRead(secrets, values[0])
	s.mustWrite(secrets)
	t.look(s)
	s.saysDegraded(writer, f.problem)
	s.allIdle()

	f.end(p)
	if !f.byItself {
		s.clock.Step(unhealthyPoll)
	}
	ready := func() bool { return s.provider(t.id).State == "ready" }
	s.until(ready, "the plugin is well again")
	s.allIdle()

	f.spoil(p)
	f.readsCold(t, s, values[1])
	f.end(p)
	s.until(func() bool { return s.read(secrets, values[1]) == nil }, "the reader reads again")
	s.clock.Step(unhealthyPoll)
	s.until(ready, "and is well")
}

// A plugin whose Decrypt fails while its Status is well is found by a read, and
// a Status that is well does not make it so.
func readerRefusesDecrypt(t *trial) {
	writer, p := faultplugin.Start(t), faultplugin.Start(t)
	values := elsewhere(t, 2, t.id, p)
	s := start(t, fileOf(rule("secrets", kms("writes-beside-"+t.id, writer), kms(t.id, p))))
	s.mustRead(secrets, values[0])
	s.allIdle()
	p.Set(func(b *faultplugin.Behaviour) {
		b.DecryptErr = status.Error(codes.PermissionDenied, "refused by the test")
	})
	require.ErrorIs(t, s.read(secrets, values[1]), envelope.ErrUnavailable)
	s.clock.Step(healthyPoll)
	s.allIdle()
	s.mustRead(secrets, values[0])
	t.look(s)

	p.Heal("1")
	s.mustRead(secrets, values[1])
	s.until(func() bool { return s.provider(t.id).State == "ready" }, "what was read shows that it is well")
}

// A plugin that refuses Status may have lost its credentials, until it is seen to
// unwrap.
func readerRefusesStatus(t *trial) {
	writer, p := faultplugin.Start(t), faultplugin.Start(t)
	values := elsewhere(t, 2, t.id, p)
	p.Set(func(b *faultplugin.Behaviour) {
		b.StatusErr = status.Error(codes.PermissionDenied, "refused by the test")
	})
	s := start(t, fileOf(rule("secrets", kms("writes-beside-"+t.id, writer), kms(t.id, p))))
	s.allIdle()
	require.EqualValues(t, "degraded", s.provider(t.id).State)
	s.mustRead(secrets, values[0])
	for range 3 {
		s.clock.Step(healthyPoll)
		s.allIdle()
		require.EqualValues(t, "ready", s.provider(t.id).State)
	}
	s.mustRead(secrets, values[1])
	t.look(s)
}

// Whoever drives a rotation sees whether an apiserver reaches the plugin that it
// leads to, and under which key_id, before anything is written with it.
func TestTheKeyIDOfAPluginIsKnownInEveryRole(t *testing.T) {
	old, next := faultplugin.Start(t), faultplugin.Start(t)
	next.Heal("2")
	both := func(first, second string) string { return fileOf(rule("secrets", first, second)) }
	kmsOld, kmsNext := kms("known-old", old), kms("known-next", next)
	s := start(t, both(kmsOld, kmsNext)).follow()
	knows := func(role healthz.Role, keyID string) {
		t.Helper()
		s.passUntil(func() bool {
			p := s.provider("known-next")
			return p.Role == role && p.State == "ready" && p.KeyIDHash == envelope.HashKeyID(keyID)
		}, "the key_id is "+keyID)
	}
	knows("read", "2")
	require.Contains(t, s.metrics(t, "known-next", nil), "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{")
	next.Heal("3")
	s.clock.Step(healthyPoll)
	knows("read", "3")
	require.False(t, s.provider("known-next").LastHealthy.IsZero())
	require.Zero(t, next.Calls().Encrypt)

	s.put(both(kmsNext, kmsOld))
	knows("write", "3")
	s.mustWrite(secrets)
	s.put(both(kmsOld, kmsNext))
	s.passUntil(func() bool { return s.provider("known-next").Role == "read" }, "it is only read with again")
	wrapped := next.Calls().Encrypt
	next.Heal("4")
	s.clock.Step(healthyPoll)
	knows("read", "4")
	require.Equal(t, wrapped, next.Calls().Encrypt)
}

// Neither a start nor a reload nor the end waits for a plugin that is only read
// with, however long it takes to answer.
func TestNothingWaitsForAPluginThatIsOnlyReadWith(t *testing.T) {
	writer, p, other := faultplugin.Start(t), faultplugin.Start(t), faultplugin.Start(t)
	for _, hung := range []*faultplugin.Plugin{p, other} {
		hung.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	}
	hangs := func(name string, p *faultplugin.Plugin) string { return kms(name, p, "timeout: 24h") }
	s := start(t, fileOf(rule("secrets", kms("writes", writer), hangs("hangs", p)))).follow()
	s.mustRead(secrets, s.mustWrite(secrets))
	s.until(func() bool { return p.Calls().Status == 1 }, "it is asked")
	for _, content := range []string{
		fileOf(rule("secrets", kms("writes", writer), hangs("hangs", p), hangs("hangs too", other))),
		fileOf(rule("secrets", kms("writes", writer), hangs("hangs too", other))),
		fileOf(rule("secrets", kms("writes", writer))),
	} {
		s.put(content)
		s.loaded(content)
		require.NoError(t, s.check())
	}
	s.mustRead(secrets, s.mustWrite(secrets))
	require.Equal(t, 1, p.Calls().Status)
	s.end()
}

// saysDegraded spoils the plugin that is written with, for the text of the check
// to be seen, which then tells of the reader too.
func (s *server) saysDegraded(writer *faultplugin.Plugin, p envelope.Problem) {
	s.t.Helper()
	writer.Set(func(b *faultplugin.Behaviour) { b.Healthz = "spoilt" })
	s.clock.Step(healthyPoll)
	s.until(func() bool { return !s.healthy() }, "the writer is not ready")
	require.ErrorContains(s.t, s.check(), fmt.Sprintf("(read only): degraded, %s since", p))
	writer.Heal("1")
	s.allIdle()
	s.clock.Step(unhealthyPoll)
	s.until(s.healthy, "the writer is ready again")
}
