package suite

import "time"

// Scale is how large the cases are.
type Scale struct {
	Sizes      []int // of values, in bytes
	Goroutines []int
	// Writes is how many values are written of one key, for memory.
	Writes int
	// Objects under DEKs are what is read cold, with a plugin that takes Delay
	// to answer.
	Objects, DEKs int
	Delay         time.Duration
	// Readers ask for one cold DEK at once.
	Readers int
	// Patience is after how long a cold start is broken off.
	Patience time.Duration
}

// Full is the scale that the project's targets are stated for.
func Full() Scale {
	return Scale{
		Sizes:      []int{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20},
		Goroutines: []int{1, 2, 4, 8, 16},
		Writes:     10_000_000,
		Objects:    10_000, DEKs: 200, Delay: 20 * time.Millisecond,
		Readers: 500, Patience: 10 * time.Second,
	}
}

// Quick keeps what is needed for a first look.
func Quick() Scale {
	s := Full()
	s.Writes = 200_000
	s.Objects, s.DEKs = 2_000, 40
	s.Patience = 2 * time.Second
	return s
}

// Tiny is for tests: everything runs once, and no figure means anything.
func Tiny() Scale {
	return Scale{
		Sizes: []int{64, 1 << 10}, Goroutines: []int{1, 2},
		Writes: 200, Objects: 40, DEKs: 4, Delay: time.Millisecond,
		Readers: 20, Patience: time.Second,
	}
}
