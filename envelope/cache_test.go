package envelope

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/stored"
)

func tail(i int) []byte { return fmt.Appendf(nil, "tail %d", i) }

func TestCacheKeepsWhatIsUsed(t *testing.T) {
	c := newCache(10)
	hot := &knownDEK{keyID: "hot"}
	c.add([]byte("hot"), hot)
	for i := range 1000 {
		require.Same(t, hot, c.find([]byte("hot")))
		c.add(tail(i), &knownDEK{keyID: fmt.Sprint(i)})
		require.NotNil(t, c.find(tail(i)))
		require.LessOrEqual(t, c.len(), 10)
	}
	require.Nil(t, c.find(tail(0)))
	require.Equal(t, 10, inShards(c), "what was evicted is gone from the shards too")
}

func inShards(c *cache) int {
	entries := 0
	for i := range c.shards {
		if s := c.shards[i].Load(); s != nil {
			entries += len(*s)
		}
	}
	return entries
}

func TestCacheUnderConcurrentUse(t *testing.T) {
	c := newCache(50)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 2000 {
				c.add(tail(i%200), &knownDEK{keyID: fmt.Sprint(i % 200)})
				if dek := c.find(tail(i % 97)); dek != nil {
					assert.Equal(t, fmt.Sprint(i%97), dek.keyID)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 50, c.len())
}

// What is dropped meanwhile is found or not, and what stays is found.
func TestDroppingBesideLookUps(t *testing.T) {
	const n, aged = 200, 100
	c := newCache(n)
	for i := aged; i < n; i++ {
		c.add(tail(i), &knownDEK{keyID: fmt.Sprint(i)})
	}
	isAged := func(d *knownDEK) bool { return !d.since.IsZero() }
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for range 300 {
				for i := w; i < aged; i += 2 {
					c.add(tail(i), &knownDEK{keyID: fmt.Sprint(i), since: testStart})
				}
				c.drop(isAged)
			}
		})
		wg.Go(func() {
			for i := range 50_000 {
				dek := c.find(tail(i % n))
				if i%n >= aged && dek == nil || dek != nil && dek.keyID != fmt.Sprint(i%n) {
					t.Errorf("found %v for %d", dek, i%n)
					return
				}
			}
		})
		wg.Go(func() {
			for range 300 {
				assert.GreaterOrEqual(t, c.len(), n-aged)
				assert.GreaterOrEqual(t, len(c.deks()), n-aged)
			}
		})
	}
	wg.Wait()
	c.drop(isAged)
	require.Empty(t, c.drop(isAged), "none is left")
	require.Equal(t, n-aged, c.len())
	require.Equal(t, n-aged, inShards(c), "what was dropped is gone from the shards too")
}

// Each part of a DEK source tells one DEK from another: plugins may answer with
// a constant ciphertext and keep the real one in an annotation.
func TestCacheTellsSourcesApart(t *testing.T) {
	base := stored.DEKSource{KeyID: "1", EncryptedDEK: []byte("dek"), Annotations: []stored.Annotation{{Key: "a.b", Value: []byte("v")}}}
	sources := map[string]stored.DEKSource{"base": base}
	vary := func(name string, change func(*stored.DEKSource)) {
		s := base
		change(&s)
		sources[name] = s
	}
	vary("type", func(s *stored.DEKSource) { s.Type = stored.SourceSeed })
	vary("key_id", func(s *stored.DEKSource) { s.KeyID = "2" })
	vary("encrypted DEK", func(s *stored.DEKSource) { s.EncryptedDEK = []byte("kek") })
	vary("no annotation", func(s *stored.DEKSource) { s.Annotations = nil })
	vary("annotation key", func(s *stored.DEKSource) { s.Annotations = []stored.Annotation{{Key: "a.c", Value: []byte("v")}} })
	vary("annotation value", func(s *stored.DEKSource) { s.Annotations = []stored.Annotation{{Key: "a.b", Value: []byte("w")}} })
	vary("boundary", func(s *stored.DEKSource) { s.KeyID, s.EncryptedDEK = "1d", []byte("ek") })

	c := newCache(100)
	for name, s := range sources {
		require.Nil(t, c.findSource(&s, nil), name)
		c.addSource(&s, nil, &knownDEK{keyID: name})
	}
	for name, s := range sources {
		require.Equal(t, name, c.findSource(&s, nil).keyID)
	}
}

// Objects of one DEK that differ in what we do not know must not fill the cache.
func TestCacheRemembersOtherOrdersButNotOtherFields(t *testing.T) {
	s := stored.DEKSource{KeyID: "1", EncryptedDEK: []byte("dek")}
	c := newCache(100)
	c.addSource(&s, nil, &knownDEK{})
	reordered := append([]byte("\x1a\x03dek"), "\x12\x011"...)
	require.NotNil(t, c.findSource(&s, reordered))
	require.NotNil(t, c.find(reordered))
	for i := range 50 {
		c.findSource(&s, append(s.Tail(), fmt.Sprintf("\x7a\x02%02d", i)...))
	}
	require.Equal(t, 2, c.len())
}

// Of many annotations there are too many orders to remember.
func TestCacheRemembersTheOrdersOfFewAnnotationsOnly(t *testing.T) {
	for n, aliases := range map[int]int{maxAliases: 1, maxAliases + 1: 0} {
		s := stored.DEKSource{KeyID: "1", EncryptedDEK: []byte("dek")}
		for i := range n {
			s.Annotations = append(s.Annotations, stored.Annotation{Key: fmt.Sprintf("%d.a", i), Value: []byte("v")})
		}
		raw := s.Tail()
		slices.Reverse(raw) // as long, and not the same
		c := newCache(100)
		c.addSource(&s, raw, &knownDEK{})
		require.Equal(t, 1+aliases, c.len(), "%d annotations, as it is added", n)

		c = newCache(100)
		c.addSource(&s, nil, &knownDEK{})
		require.NotNil(t, c.findSource(&s, raw))
		require.Equal(t, 1+aliases, c.len(), "%d annotations, as it is found", n)
	}
}

// Memory must depend on the number of DEKs alone.
func TestWritesAndReadsLeaveNothingBehind(t *testing.T) {
	r := newRig(t)
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	use := func(n int) {
		for range n {
			r.read(r.write("value"))
		}
	}
	use(1000)
	before := live()
	use(100_000)
	require.Less(t, int64(live())-int64(before), int64(200_000), "under 2 bytes a write")
}

func TestADEKOfMaximumAgeIsUnwrappedAgain(t *testing.T) {
	payload := newRig(t).write("value")
	clock := testingclock.NewFakeClock(testStart)
	l, plugin := reader(t, func(o *Options) { o.MaxDEKAge, o.Clock = time.Hour, clock })
	open := func() int {
		_, _, err := l.Open(t.Context(), payload, testKey)
		require.NoError(t, err)
		_, _, decrypts := plugin.calls()
		return decrypts
	}
	require.Equal(t, 1, open())
	clock.Step(time.Hour)
	l.DropAged()
	require.Equal(t, 1, open(), "not before its time")
	clock.Step(1)
	l.DropAged()
	require.Zero(t, l.Health().CachedDEKs)
	require.Equal(t, 2, open())
}

func TestTheWriteDEKDoesNotAge(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxDEKAge = time.Minute })
	payload := r.write("value")
	r.pass(2 * time.Minute)
	r.DropAged()
	r.plugin.die()
	r.read(payload)
	r.read(r.write("value"))
}

// The tender drops, counts and reports while values are written and read.
func TestHousekeepingBesideReadsAndWrites(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxDEKAge, o.MaxDEKs = time.Millisecond, 4 })
	var payloads [][]byte
	for i := range 8 {
		other := newRig(t)
		payloads = append(payloads, other.write(fmt.Sprint(i)))
	}
	done := make(chan struct{})
	var using, tending sync.WaitGroup
	for range 4 {
		using.Go(func() {
			for i := range 500 {
				out, _, err := r.Open(t.Context(), payloads[i%8], testKey)
				if assert.NoError(t, err) {
					assert.Equal(t, fmt.Sprint(i%8), string(out))
				}
				_, err = r.Seal(t.Context(), testPrefix, out, testKey)
				assert.NoError(t, err)
			}
		})
	}
	var use Use
	last := map[string]Use{}
	count := func() {
		now := r.Usage()
		for keyID, u := range now {
			since := u.Since(last[keyID])
			use.Reads += since.Reads
			use.Writes += since.Writes
		}
		last = now
	}
	tending.Go(func() {
		for {
			r.clock.Step(time.Millisecond)
			r.DropAged()
			count()
			assert.LessOrEqual(t, r.Health().CachedDEKs, 4)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	using.Wait()
	close(done)
	tending.Wait()
	count()
	require.Equal(t, Use{Reads: 2000, Writes: 2000}, use)
}
