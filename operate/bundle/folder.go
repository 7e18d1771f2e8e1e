package bundle

import "errors"

// ReadFolder reads a bundle from a folder of files with the names of [Bundle.Encode]:
// one that [Bundle.WriteFolder] wrote, one that a person filled, or a Secret as the
// kubelet mounts it. What it returns was there at one moment. Files whose names begin
// with a dot are not looked at.
//
// It refuses symbolic links, but for the one by which the whole is replaced, files that
// anybody but the owner may read or write, owners that are neither root nor the
// process's own user, and more than [MaxSize] bytes.
func ReadFolder(path string) (*Bundle, error) { return nil, errors.New("not yet") }

// WriteFolder makes the folder hold this bundle, and makes it if it is not there: files
// of mode 0600, replaced all at once by a rename, and durable when it returns. What was
// there before is overwritten and removed. One process at a time may write a folder.
func (b *Bundle) WriteFolder(path string) error { return errors.New("not yet") }
