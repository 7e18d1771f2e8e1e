package faults

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

var keyRows = []row{
	{
		id:     "key-aged",
		seen:   "`not ready, unreachable since`, `\"cachedDEKs\":0`",
		goesOn: writesEnd + "reads of what is written with now; no others",
		test:   keyAged,
	},
	{
		id:     "key-evicted",
		seen:   "`not ready, unreachable since`, `\"cachedDEKs\":2`, `dek_source_cache_size{} 2`",
		goesOn: writesEnd + "reads of the `KMS.MaxDEKs` keys in memory, which has those that were used since the last 1/64 of so many came",
		test:   keyEvicted,
	},
	{
		id:     "key-used-up",
		seen:   "`not ready, unreachable since`, `\"dekWrites\":16`",
		goesOn: "no writes; " + hotReads,
		test:   keyUsedUp,
	},
}

// keyAged is an outage that is longer than the maximum age.
func keyAged(t *trial) {
	const age = 10 * time.Minute
	p := faultplugin.Start(t)
	other := elsewhere(t, 1, t.id, p)[0]
	s := prepare(t, fileOf(rule("secrets", kms(t.id, p)))).start(func(o *atrest.Options) { o.KMS.MaxDEKAge = age })
	began := s.clock.Now()
	own := s.mustWrite(secrets)
	s.mustRead(secrets, other)
	p.Kill()
	s.comesTo(func() bool { return !s.healthy() }, "the outage is noticed")
	s.clock.Step(age - time.Second - s.clock.Now().Sub(began))
	s.mustRead(secrets, other)
	s.clock.Step(time.Second + tendEvery)
	s.until(func() bool { return s.provider(t.id).CachedDEKs == 0 }, "the keys are dropped")
	require.ErrorIs(t, s.read(secrets, other), envelope.ErrUnavailable)
	s.mustRead(secrets, own)
	t.look(s)

	p.Serve()
	s.until(s.healthy, "the plugin is back")
	s.mustRead(secrets, other)
}

// tendEvery is how often keys of the maximum age are looked for.
const tendEvery = 5 * time.Second

// keyEvicted reads under one key more than are kept. When the third comes, the
// second is the one that was used since the last.
func keyEvicted(t *trial) {
	p := faultplugin.Start(t)
	values := elsewhere(t, 3, t.id, p)
	s := prepare(t, fileOf(rule("secrets", kms(t.id, p)))).start(func(o *atrest.Options) { o.KMS.MaxDEKs = 2 })
	for _, v := range values {
		s.mustRead(secrets, v)
	}
	p.Kill()
	s.comesTo(func() bool { return !s.healthy() }, "the outage is noticed")
	require.ErrorIs(t, s.read(secrets, values[0]), envelope.ErrUnavailable)
	s.mustRead(secrets, values[1])
	s.mustRead(secrets, values[2])
	s.mustRead(secrets, s.mustWrite(secrets))
	t.look(s)
}

// keyUsedUp is a write DEK that has sealed all it may while its plugin is away.
func keyUsedUp(t *trial) {
	const most = 16
	p := faultplugin.Start(t)
	s := prepare(t, fileOf(rule("secrets", kms(t.id, p)))).start(func(o *atrest.Options) { o.KMS.MaxWrites = most })
	p.Kill()
	s.comesTo(func() bool { return !s.healthy() }, "the outage is noticed")
	var last []byte
	for range most {
		last = s.mustWrite(secrets)
	}
	_, err := s.write(secrets)
	require.ErrorIs(t, err, envelope.ErrWritesStopped)
	require.ErrorContains(t, err, "used up")
	s.mustRead(secrets, last)
	t.look(s)

	p.Serve()
	s.until(s.healthy, "the plugin is back")
	s.mustWrite(secrets)
}
