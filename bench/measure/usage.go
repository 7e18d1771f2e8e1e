package measure

import (
	"runtime"
	"syscall"
	"time"
)

// usage is what the process has used so far.
type usage struct {
	cpu           time.Duration
	bytes, allocs uint64
}

func look() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{cpu: processorTime(), bytes: m.TotalAlloc, allocs: m.Mallocs}
}

func (u usage) since(before usage) usage {
	return usage{cpu: u.cpu - before.cpu, bytes: u.bytes - before.bytes, allocs: u.allocs - before.allocs}
}

// processorTime is the time that processors spent on this process, 0 if the
// system does not tell.
func processorTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
