// Package filestamp is one thing: what a look at a file has to remember so that the next one
// sees whether anything was done to it. Two files of one size that were changed in the same
// instant differ, and so does one file before and after a chmod; who only reads changes
// nothing.
package filestamp

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// A Stamp is equal to another by == only if it is of the same file, in the same state.
type Stamp struct {
	device, inode     uint64
	size              int64
	mode              os.FileMode
	owner             uint32
	modified, changed time.Time
}

// Of is the stamp of a file that was looked at.
func Of(info os.FileInfo) Stamp {
	s := Stamp{size: info.Size(), mode: info.Mode(), modified: info.ModTime()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode, s.owner, s.changed = uint64(stat.Dev), stat.Ino, stat.Uid, changed(stat)
	}
	return s
}

// All is what changes when anything is done to one of the files that have these names.
func All(names []string) string {
	text := ""
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			text += "|" + err.Error()
			continue
		}
		text += fmt.Sprintf("|%+v", Of(info))
	}
	return text
}
