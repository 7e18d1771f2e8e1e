// Package plugin is what the two versions of the KMS API have in common: the
// connection to a plugin over a unix socket, who uses it, the loop that follows
// it, and what a call that failed says of it. It knows neither API and holds no
// keys.
package plugin
