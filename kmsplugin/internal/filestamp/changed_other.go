//go:build unix && !linux

package filestamp

import (
	"syscall"
	"time"
)

// changed is not looked at here: each system has another name for it.
func changed(*syscall.Stat_t) time.Time { return time.Time{} }
