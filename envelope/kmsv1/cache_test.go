package kmsv1

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsKnownIsNotAddedAgain(t *testing.T) {
	c := newCache(2)
	first := &dek{}
	for range 3 {
		c.add([]byte("a"), first, testStart)
		c.add([]byte("a"), &dek{}, testStart)
		require.Same(t, first, c.find([]byte("a")))
	}
	c.add([]byte("b"), &dek{}, testStart)
	require.NotNil(t, c.find([]byte("a")), "one place each")
	require.Equal(t, 2, c.len())
}

// A long wrapped DEK costs no more than the short ones.
func TestNoEntryIsLargerThanItsBound(t *testing.T) {
	c := newCache(10)
	for i := range 10 {
		long := append(bytes.Repeat([]byte{7}, maxWrapped-1), byte(i))
		d := &dek{}
		c.add(long, d, testStart)
		require.Same(t, d, c.find(long))
	}
	for key := range c.byKey {
		require.LessOrEqual(t, len(key), maxKey)
	}
	require.Nil(t, c.find(bytes.Repeat([]byte{7}, maxWrapped)[:maxWrapped-1]))
}

func TestTheCacheUnderManyHands(t *testing.T) {
	c := newCache(16)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 500 {
				name := []byte(fmt.Sprint((i + j) % 40))
				c.add(name, &dek{}, testStart)
				c.find(name)
				if j%100 == 0 {
					c.dropBefore(testStart)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 16, c.len())
	n := 0
	for e := c.ring.next; e != &c.ring; e = e.next {
		require.Same(t, e, c.byKey[e.key])
		n++
	}
	require.Equal(t, 16, n)
}
