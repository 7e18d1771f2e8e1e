package main

import (
	"context"
	"fmt"
)

// measured is one thing that users feel.
type measured struct {
	name, about string
	run         func(context.Context, *bench) error
}

func cases() []measured {
	return []measured{
		{"start", "from the start of a server to ready, with Secrets under many DEKs and a plugin that answers Decrypt in 20 ms", starts},
		{"create", "creates a second, of Secrets of 1 KiB, with 1 client and with 16", creates},
		{"list", "LIST of all Secrets from etcd, not from the watch cache", lists},
		{"memory", "memory after many updates, without a watch cache for Secrets", memory},
	}
}

// bench is what a case needs.
type bench struct {
	*lab
	scale
	sides []side
	book  *book
	// told is told how far the case is.
	told func(done, of int)
}

// Names of groups of figures.
func createGroup(clients int) string { return fmt.Sprintf("Create/clients=%d", clients) }
func listGroup(s scale) string       { return fmt.Sprintf("List/secrets=%d", s.secrets) }
func startGroup(s scale) string      { return fmt.Sprintf("Start/secrets=%d/deks=%d", s.secrets, s.deks) }
func memoryGroup(s scale) string     { return fmt.Sprintf("Memory/writes=%d", s.writes) }

const (
	// oneClient and manyClients are those of the creates.
	oneClient   = 1
	manyClients = 16
	// chunks is in how many parts the writes are done, after each of which memory is
	// looked at.
	chunks = 10
	// uncached keeps a server from answering for Secrets out of its watch cache.
	uncached = "--watch-cache-sizes=secrets#0"
)
