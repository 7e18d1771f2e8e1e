// Package telemetry is what a plugin tells of itself beside its log. In comes what a
// [kmsplugin.Observer] is told, out goes a port that speaks HTTP: metrics for Prometheus, and
// answers on its health. It changes nothing, and nothing of it holds a key or, but as a hash,
// a key_id.
package telemetry
