package stored

import "errors"

// ErrCorrupt means that a stored value reached a provider which knows its
// format and has a key for it, and did not open: authentication failed or the
// bytes cannot be decoded. The value was damaged, moved to another etcd key, or
// written under another key of the same name. Trying again does not help.
//
// An unreachable KMS plugin is never ErrCorrupt.
var ErrCorrupt = errors.New("the value is damaged, was moved to another etcd key, or was written with another key of this name")
