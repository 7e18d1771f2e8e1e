//go:build race

package keys_test

// raced reports whether these tests are slowed down by the race detector, which sees
// nothing in a search by one goroutine.
const raced = true
