//go:build !linux

package keptfile

import (
	"fmt"
	"io/fs"
	"path/filepath"
)

// syncAll needs a system that does that.
func syncAll(name string) error {
	return fmt.Errorf("folder %s: %w: let its user read it", filepath.Dir(name), fs.ErrPermission)
}
