package envelope

import (
	"errors"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// What a caller may want to tell apart. Each is wrapped with the provider, the
// cause and what to do; a gRPC status that a plugin answered with stays
// reachable by errors.As.
var (
	// ErrUnavailable: the plugin could not be asked, or refused. Nothing is
	// wrong with the value, and the same call may succeed later.
	ErrUnavailable = plugin.ErrUnavailable
	// ErrUnknownKEK: the plugin answered that it has no such KEK. It was
	// destroyed, or belongs to another plugin.
	ErrUnknownKEK = plugin.ErrUnknownKEK
	// ErrWritesStopped: the write window has closed, or never opened: no DEK
	// may be used for writing until the plugin is healthy. Reads are not affected.
	ErrWritesStopped = errors.New("writes have stopped")
	// ErrCorrupt: the value cannot be a stored object, or does not open under
	// its own DEK for its etcd key. Trying again does not help.
	ErrCorrupt = stored.ErrCorrupt
	// ErrForeignDEK is an [ErrCorrupt]: the plugin answered InvalidArgument to the
	// wrapped DEK, which is a part of the value.
	ErrForeignDEK = plugin.ErrForeignDEK
	// ErrClosed: the provider was closed; its configuration is no longer in use.
	ErrClosed = plugin.ErrClosed
)

// Problem is the class of what is wrong with a plugin, for metrics and for
// choosing what to do. The empty Problem is none.
type Problem = plugin.Problem

// The classes of [Problem].
const (
	Unreachable  = plugin.Unreachable  // nothing listens on the socket, or the connection broke
	KMSAway      = plugin.KMSAway      // the plugin answers that the KMS behind it is out of reach
	TimedOut     = plugin.TimedOut     // no answer within the configured timeout
	Denied       = plugin.Denied       // the plugin or the KMS behind it refused the caller
	Throttled    = plugin.Throttled    // too many calls
	KeyDisabled  = plugin.KeyDisabled  // the KEK cannot be used in its present state
	Unhealthy    = plugin.Unhealthy    // Status says so itself
	BadVersion   = plugin.BadVersion   // the plugin speaks an unknown version of the API, or changed it
	BadKeyID     = plugin.BadKeyID     // Status gave an empty or oversized key_id
	BadAnswer    = plugin.BadAnswer    // Encrypt's or Decrypt's answer cannot be used
	Disagreement = plugin.Disagreement // Encrypt used another key_id than Status names
	Failed       = plugin.Failed       // any other error of a call
	Closed       = plugin.Closed       // it is no longer used: nothing is read or written with it
)
