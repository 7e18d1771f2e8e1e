package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// fault is something that happens to a plugin.
type fault struct {
	id      string
	problem envelope.Problem // how it is classed
	spoil   func(*faultplugin.Plugin)
	heal    func(*faultplugin.Plugin)
	// cold is what a read under a key that is not in memory comes to.
	cold error
	// byItself: the connection tells of the fault, and of its end.
	byItself bool
	// timeout is that of the provider, if it matters.
	timeout time.Duration
}

func heal(p *faultplugin.Plugin) { p.Heal("1") }

func behave(change func(*faultplugin.Behaviour)) func(*faultplugin.Plugin) {
	return func(p *faultplugin.Plugin) { p.Set(change) }
}

// refuse fails every call with a gRPC code.
func refuse(code codes.Code) func(*faultplugin.Plugin) {
	err := status.Error(code, "refused by the test")
	return behave(func(b *faultplugin.Behaviour) { b.StatusErr, b.EncryptErr, b.DecryptErr = err, err, err })
}

// kmsAway is what a plugin of this project's kit answers whose KMS is away.
func kmsAway() func(*faultplugin.Plugin) {
	s, _ := status.New(codes.Unavailable, "sealed").WithDetails(&errdetails.ErrorInfo{Reason: "UNAVAILABLE"})
	return behave(func(b *faultplugin.Behaviour) { b.StatusErr, b.EncryptErr, b.DecryptErr = s.Err(), s.Err(), s.Err() })
}

// faults are those of every plugin, whether it is written with or only read.
var faults = []fault{
	{id: "killed", problem: envelope.Unreachable, cold: envelope.ErrUnavailable, byItself: true,
		spoil: (*faultplugin.Plugin).Kill, heal: (*faultplugin.Plugin).Serve},
	{id: "hanging", problem: envelope.TimedOut, cold: envelope.ErrUnavailable, timeout: 2 * time.Second,
		spoil: behave(func(b *faultplugin.Behaviour) { b.Hang = true })},
	{id: "kms-away", problem: envelope.KMSAway, cold: envelope.ErrUnavailable, spoil: kmsAway()},
	{id: "denied", problem: envelope.Denied, cold: envelope.ErrUnavailable, spoil: refuse(codes.PermissionDenied)},
	{id: "throttled", problem: envelope.Throttled, cold: envelope.ErrUnavailable, spoil: refuse(codes.ResourceExhausted)},
	{id: "key-disabled", problem: envelope.KeyDisabled, cold: envelope.ErrUnavailable, spoil: refuse(codes.FailedPrecondition)},
	{id: "failing", problem: envelope.Failed, cold: envelope.ErrUnavailable, spoil: refuse(codes.Internal)},
}

// statusFaults are what Status may answer, and nothing else is wrong.
var statusFaults = []fault{
	{id: "unhealthy", problem: envelope.Unhealthy, spoil: behave(func(b *faultplugin.Behaviour) { b.Healthz = "the HSM is locked" })},
	{id: "version-unknown", problem: envelope.BadVersion, spoil: behave(func(b *faultplugin.Behaviour) { b.Version = "v3" })},
	{id: "version-changed", problem: envelope.BadVersion, spoil: behave(func(b *faultplugin.Behaviour) { b.Version = "v2beta1" })},
	{id: "key-id-empty", problem: envelope.BadKeyID, spoil: behave(func(b *faultplugin.Behaviour) { b.KeyID = "" })},
	{id: "key-id-oversized", problem: envelope.BadKeyID, spoil: behave(func(b *faultplugin.Behaviour) { b.KeyID = strings.Repeat("k", 1025) })},
}

// encryptFaults are those of a plugin that is written with: no other is asked
// to encrypt.
var encryptFaults = []fault{
	{id: "disagreement", problem: envelope.Disagreement, spoil: behave(func(b *faultplugin.Behaviour) { b.KeyID, b.EncryptKeyID = "2", "3" })},
	{id: "encrypt-refused", problem: envelope.Denied, spoil: behave(func(b *faultplugin.Behaviour) {
		b.KeyID, b.EncryptErr = "2", status.Error(codes.PermissionDenied, "refused by the test")
	})},
	{id: "encrypt-unusable", problem: envelope.BadAnswer, spoil: behave(func(b *faultplugin.Behaviour) {
		b.KeyID, b.Annotations = "2", map[string][]byte{"not a domain": nil}
	})},
}

const (
	writesEnd = "writes for 180 s after the plugin was last healthy; "
	hotReads  = "reads of keys in memory, without end"
	allReads  = "all reads"
)

func writerRows() []row {
	var rows []row
	for _, f := range slices.Concat(faults, statusFaults, encryptFaults) {
		goesOn := writesEnd + allReads
		if f.cold != nil {
			goesOn = writesEnd + hotReads
		}
		rows = append(rows, row{
			id:     f.id,
			seen:   fmt.Sprintf("`not ready, %s since`, `kms_provider_problem{problem=%q} 1`", f.problem, f.problem),
			goesOn: goesOn,
			test:   f.ofAWriter,
		})
	}
	return rows
}

func (f fault) provider(name string, p *faultplugin.Plugin) string {
	if f.timeout == 0 {
		return kms(name, p)
	}
	return kms(name, p, "timeout: "+f.timeout.String())
}

func (f fault) end(p *faultplugin.Plugin) {
	if f.heal == nil {
		f.heal = heal
	}
	f.heal(p)
}

// ofAWriter goes through the fault at a plugin that is written with: how it is
// noticed, the write window, what is read, and how its end is noticed.
func (f fault) ofAWriter(t *trial) {
	p := faultplugin.Start(t)
	cold := elsewhere(t, 2, f.id, p)
	s := start(t, fileOf(rule("secrets", f.provider(f.id, p))))
	hot := s.mustWrite(secrets)
	s.idle(healthyPoll)

	f.spoil(p)
	if !f.byItself {
		s.clock.Step(healthyPoll)
	}
	s.comesTo(func() bool { return s.provider(f.id).Problem == string(f.problem) }, "the problem is noticed")
	s.idle(unhealthyPoll)
	left := s.provider(f.id).WritesLeft
	require.ErrorContains(t, s.check(), fmt.Sprintf("writes go on for %v s", left))
	hot2 := s.mustWrite(secrets)
	f.readsCold(t, s, cold[0])

	s.clock.Step(time.Duration(left)*time.Second - time.Second)
	s.mustWrite(secrets)
	s.idle(unhealthyPoll)
	s.clock.Step(time.Second)
	_, err := s.write(secrets)
	require.ErrorIs(t, err, envelope.ErrWritesStopped)
	require.ErrorContains(t, s.check(), "writes have stopped, reads go on")
	s.clock.Step(25 * time.Hour)
	s.idle(unhealthyPoll)
	s.mustRead(secrets, hot)
	s.mustRead(secrets, hot2)
	t.look(s)

	f.end(p)
	if !f.byItself {
		s.clock.Step(unhealthyPoll)
	}
	s.comesTo(s.healthy, "the plugin is healthy again")
	s.mustWrite(secrets)
	s.mustRead(secrets, hot)
	s.mustRead(secrets, cold[1])
}

// readsCold reads a value under a key that is not in memory.
func (f fault) readsCold(t *trial, s *server, value []byte) {
	t.Helper()
	err := s.read(secrets, value)
	if f.cold == nil {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, f.cold)
	require.NotErrorIs(t, err, envelope.ErrCorrupt)
}

// Key_ids that do not settle cost one DEK, and each poll one Encrypt.
func TestADisagreementMakesNoDEKEachTime(t *testing.T) {
	p := faultplugin.Start(t)
	s := start(t, fileOf(rule("secrets", kms("settling", p))))
	p.Set(func(b *faultplugin.Behaviour) { b.KeyID, b.EncryptKeyID = "2", "3" })
	s.idle(healthyPoll)
	s.clock.Step(healthyPoll)
	for range 3 {
		s.idle(unhealthyPoll)
		s.clock.Step(unhealthyPoll)
	}
	p.Heal("3")
	s.until(func() bool { s.clock.Step(unhealthyPoll); return s.healthy() }, "the key_ids agree")
	wrapped := p.Secrets()
	require.GreaterOrEqual(t, len(wrapped), 4)
	for _, secret := range wrapped[2:] {
		require.Equal(t, wrapped[1], secret, "the same DEK each time")
	}
}
