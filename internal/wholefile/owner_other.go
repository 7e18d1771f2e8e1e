//go:build !unix

package wholefile

import (
	"io/fs"
	"os"
)

// giveTo leaves the owner to the system, which knows no other.
func giveTo(*os.File, fs.FileInfo) error { return nil }

func hasOtherNames(fs.FileInfo) bool { return false }

// lock has nothing to do where a file that is open cannot be removed.
func lock(*os.File) (free bool) { return true }

// beforeRename closes a file: one that is open is not renamed.
func beforeRename(file *os.File) error { return file.Close() }

func isRemoved(*os.File) bool { return false }
