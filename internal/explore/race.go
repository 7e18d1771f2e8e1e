//go:build race

package explore

// Raced reports whether these tests are slowed down by the race detector, which sees nothing in a
// search by one goroutine.
const Raced = true
