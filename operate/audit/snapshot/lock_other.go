//go:build !unix

package snapshot

import "os"

// isLocked reports whether somebody has the file for writing, which is told
// nowhere here: a transaction of theirs ends the walk all the same.
func isLocked(*os.File) bool { return false }
