package faults

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// readingRows are faults of Decrypt alone, at a plugin that is written with:
// Status, and so the check, says nothing of them.
var readingRows = []row{
	{
		id:     "decrypt-refused",
		seen:   "`kms-providers: ok`, `transformation_operations_total{status=\"PermissionDenied\"} 1`",
		goesOn: "writes; " + hotReads,
		test: decrypting(envelope.ErrUnavailable, func(b *faultplugin.Behaviour) {
			b.DecryptErr = status.Error(codes.PermissionDenied, "refused by the test")
		}),
	},
	{
		id:     "kek-unknown",
		seen:   "`kms-providers: ok`, `transformation_operations_total{status=\"NotFound\"} 1`",
		goesOn: "writes; " + hotReads,
		test:   decrypting(envelope.ErrUnknownKEK, func(b *faultplugin.Behaviour) { b.Forgotten = []string{"1"} }),
	},
	{
		id:     "decrypt-garbage",
		seen:   "`kms-providers: ok`, `transformation_operations_total{status=\"unknown-non-grpc\"} 1`",
		goesOn: "writes; " + hotReads,
		test:   decrypting(envelope.ErrCorrupt, func(b *faultplugin.Behaviour) { b.Garbage = []byte("no key") }),
	},
	{
		id:     "decrypt-wrong-key",
		seen:   "`kms-providers: ok`, `transformation_operations_total{status=\"unknown-non-grpc\"} 1`",
		goesOn: "writes; " + hotReads,
		test:   decrypting(envelope.ErrCorrupt, func(b *faultplugin.Behaviour) { b.Garbage = make([]byte, 32) }),
	},
}

// decrypting spoils Decrypt. What failed is not remembered: the same value can
// be read as soon as the plugin is well.
func decrypting(cold error, spoil func(*faultplugin.Behaviour)) func(*trial) {
	return func(t *trial) {
		p := faultplugin.Start(t)
		values := elsewhere(t, 2, t.id, p)
		s := start(t, fileOf(rule("secrets", kms(t.id, p))))
		hot := s.mustWrite(secrets)
		s.mustRead(secrets, values[0])
		s.idle(healthyPoll)
		p.Set(spoil)
		s.clock.Step(healthyPoll)
		s.idle(healthyPoll)
		require.ErrorIs(t, s.read(secrets, values[1]), cold)
		s.clock.Step(25 * time.Hour)
		s.idle(healthyPoll)
		s.mustRead(secrets, values[0])
		s.mustRead(secrets, hot)
		s.mustRead(secrets, s.mustWrite(secrets))
		t.look(s)

		p.Heal("1")
		s.mustRead(secrets, values[1])
	}
}

func readerRows() []row {
	var rows []row
	for _, f := range faults {
		rows = append(rows, row{
			id:     "reader-" + f.id,
			seen:   fmt.Sprintf("`kms-providers: ok`, `\"role\":\"read\",\"state\":\"degraded\",\"problem\":%q`, `kms_provider_problem{problem=%q} 1`", f.problem, f.problem),
			goesOn: "writes; " + hotReads,
			test:   f.ofAReader,
		})
	}
	return rows
}

// ofAReader goes through the fault at a plugin that is only read: it is noticed
// by a read, and its end by the next.
func (f fault) ofAReader(t *trial) {
	writer, p := faultplugin.Start(t), faultplugin.Start(t)
	values := elsewhere(t, 2, t.id, p)
	s := start(t, fileOf(rule("secrets", kms("writes-beside-"+t.id, writer), f.provider(t.id, p))))
	require.Equal(t, faultplugin.Calls{Status: 2, Encrypt: 2}, p.Calls(), "a reader asks for nothing")
	s.mustRead(secrets, values[0])

	f.spoil(p)
	require.Equal(t, "ready", s.provider(t.id).State)
	f.readsCold(t, s, values[1])
	require.Equal(t, "degraded", s.provider(t.id).State)
	s.idle(healthyPoll)
	s.clock.Step(25 * time.Hour)
	s.idle(healthyPoll)
	s.mustRead(secrets, values[0])
	s.mustWrite(secrets)
	t.look(s)
	s.saysDegraded(writer, f.problem)

	f.end(p)
	s.until(func() bool { return s.read(secrets, values[1]) == nil }, "the reader reads again")
	require.Equal(t, "ready", s.provider(t.id).State)
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
	s.idle(unhealthyPoll)
	s.clock.Step(unhealthyPoll)
	s.until(s.healthy, "the writer is ready again")
}
