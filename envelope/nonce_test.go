package envelope

import (
	"encoding/binary"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/stored"
)

// nonceOf is the nonce of a stored object written in counter mode.
func nonceOf(t testing.TB, payload []byte) []byte {
	data, _, ok := stored.Split(payload)
	require.True(t, ok)
	return data[:nonceSize]
}

// Millions of values from many goroutines: a nonce that came twice under one
// key would give away the plaintexts and the key of the authentication.
func TestNoNonceComesTwice(t *testing.T) {
	counted(t)
	const writers, each = 16, 150_000
	r := newRig(t)
	counts := make([][]uint64, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for range each {
				n := nonceOf(t, r.write("x"))
				counts[i] = append(counts[i], binary.LittleEndian.Uint64(n[fixedSize:]))
			}
		})
	}
	wg.Wait()

	all := slices.Concat(counts...)
	slices.Sort(all)
	for i, n := range all {
		require.Equal(t, uint64(i+1), n, "counters are contiguous from 1")
	}
	require.Equal(t, uint64(writers*each), r.Health().DEKWrites)
}

func TestNonceHasARandomPartOfItsOwnForEachDEK(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		seen[string(nonceOf(t, newRig(t).write("x"))[:fixedSize])] = true
	}
	require.Greater(t, len(seen), 15)
}

func TestNoncesEndRatherThanWrap(t *testing.T) {
	n, err := newNonces(zeros{}, 1<<64-1)
	require.NoError(t, err)
	require.Equal(t, uint64(maxBudget), n.left())
	n.used.Store(maxBudget - 1)

	var nonce [nonceSize]byte
	require.True(t, n.next(nonce[:]))
	require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80}, nonce[:])
	for range 1000 {
		require.False(t, n.next(nonce[:]))
	}
	require.Zero(t, n.left())
	require.Equal(t, uint64(maxBudget), n.spent())
}

// Concurrent writers run a DEK out again and again: every value is sealed, none
// under a nonce that its DEK used before, and no DEK seals more than it may.
func TestAUsedUpDEKIsReplaced(t *testing.T) {
	for _, mode := range WriteModes() {
		t.Run(string(mode), func(t *testing.T) {
			const max, writers, each = 50, 8, 400
			r := newRig(t, func(o *Options) { o.MaxWrites, o.Mode = max, mode })
			payloads := make([][][]byte, writers)
			var wg sync.WaitGroup
			for i := range writers {
				wg.Go(func() {
					for range each {
						payloads[i] = append(payloads[i], r.write("value"))
					}
				})
			}
			wg.Wait()

			nonces, perDEK := map[string]bool{}, map[string]int{}
			for _, p := range slices.Concat(payloads...) {
				data, tail, _ := stored.Split(p)
				nonces[string(tail)+string(data[:nonceSize])] = true
				perDEK[string(tail)]++
				got, stale := r.read(p)
				require.Equal(t, "value", got)
				require.False(t, stale, "another DEK of the same key_id is not stale")
			}
			require.Len(t, nonces, writers*each)
			for _, n := range perDEK {
				require.LessOrEqual(t, n, max)
			}
			_, encrypts, decrypts := r.plugin.calls()
			require.Equal(t, len(perDEK), encrypts)
			require.Equal(t, 2*encrypts-1, decrypts, "each is proven once, and the one before is tried")
		})
	}
}

func TestAUsedUpDEKAndAnAbsentPluginEndWritesNotTheProcess(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxWrites = 3 })
	var last []byte
	for range 3 {
		last = r.write("x")
	}
	r.plugin.die()
	_, err := r.Seal(t.Context(), testPrefix, []byte("x"), testKey)
	require.ErrorIs(t, err, ErrWritesStopped)
	require.ErrorContains(t, err, "used up")
	require.ErrorContains(t, err, "nobody listens")
	r.read(last)

	r.plugin.live()
	r.write("again")
}

// A DEK near its end is replaced in passing, so that no write has to wait.
func TestADEKThatRunsLowIsReplacedByTheNextPoll(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxWrites = 80 })
	for range 70 {
		r.write("x")
	}
	r.pass(DefaultHealthyPoll)
	require.Zero(t, r.Health().DEKWrites)
	_, encrypts, _ := r.plugin.calls()
	require.Equal(t, 2, encrypts)
}

// What is allocated next to a budget would otherwise be fetched again at every
// write of another processor: another provider's budget, for one.
func TestABudgetHasItsCacheLinesToItself(t *testing.T) {
	require.EqualValues(t, 128, reflect.TypeFor[budget]().Size(), "a size of which the allocator aligns its objects to lines")
}
