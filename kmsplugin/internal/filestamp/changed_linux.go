package filestamp

import (
	"syscall"
	"time"
)

// changed is when anything of the file changed, its content, mode, owner or names: nobody can
// set that time.
func changed(stat *syscall.Stat_t) time.Time { return time.Unix(stat.Ctim.Unix()) }
