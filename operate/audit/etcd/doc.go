// Package etcd reads what a running etcd holds, for package audit: in pages, as
// of one revision, over etcd's own API v3. It never writes, and keeps one page
// at a time.
package etcd
