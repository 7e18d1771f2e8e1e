//go:build !unix

package node

import "io/fs"

// checkOwner knows of no owners here.
func checkOwner(string, fs.FileInfo) error { return nil }
