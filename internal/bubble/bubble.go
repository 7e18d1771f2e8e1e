// Package bubble is for tests in which no time passes but what they wait for.
package bubble

import (
	"crypto/fips140"
	"math/rand/v2"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
)

// Test is [synctest.Test], for code that draws random numbers, too. Those of FIPS 140-3 are seeded
// from how long the memory takes (SP 800-90B), which is no time in a bubble: Go 1.26 panics there
// whenever two draw at once and a generator is to be made. In that mode they come from a
// generator for tests, under a seed of its own each time, until t ends. So neither t nor a test that
// it is part of may be parallel.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if fips140.Enabled() {
		cryptotest.SetGlobalRandom(t, rand.Uint64())
	}
	synctest.Test(t, f)
}
