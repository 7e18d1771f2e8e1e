//go:build !unix

package wholefile

import (
	"io/fs"
	"os"
)

// giveTo leaves the owner to the system, which knows no other.
func giveTo(*os.File, fs.FileInfo) error { return nil }
