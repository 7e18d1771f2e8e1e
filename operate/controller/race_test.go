//go:build race

package controller

// every is how many odd objects there are to one that is tried: the race detector sees nothing in a loop of
// one goroutine, and slows it down.
const every = 16
