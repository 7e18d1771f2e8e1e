// Package plugin is what the two versions of the KMS API have in common.
//
// [Conn] is the connection to a plugin over a unix socket. [Followed] is a
// plugin in use: who holds it open, what it is used for, what is [Known] of it,
// and the one goroutine that keeps that true for as long as the plugin is held.
// [Unwrap] has a DEK unwrapped, once for all who wait for it.
//
// The package knows neither version of the API and holds no keys.
package plugin
