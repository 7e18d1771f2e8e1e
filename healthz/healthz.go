// Package healthz is the one health check of encryption at rest, kms-providers.
//
// What is known of each KMS provider comes in as data; a checker for an
// apiserver's healthz and readyz endpoints goes out. It never calls a plugin
// and changes nothing: it reports what the providers' own loops have seen, so a
// probe costs nothing.
package healthz

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/utils/clock"
)

// Name is the check's name, and a contract with all who exclude it by name:
// /readyz?exclude=kms-providers.
const Name = "kms-providers"

// Provider is what is known of one KMS plugin.
type Provider struct {
	// Names are those of the providers on the plugin.
	Names []string
	// Endpoint is where the plugin serves.
	Endpoint string
	// Writes are the resources written with it; empty for one that only reads.
	Writes []string
	// Problem is the class of what is wrong, or empty; Cause is its text and
	// Since when it began.
	Problem string
	Cause   error
	Since   time.Time
	// WritesUntil is when writing stops unless the plugin is found healthy
	// again; zero if nothing can be written.
	WritesUntil time.Time
}

// Ready reports whether the provider does not stand against the server's
// readiness. One that only reads never does: what it has read before it reads
// without its plugin.
func (p *Provider) Ready() bool { return p.Problem == "" || len(p.Writes) == 0 }

// New makes the check over whatever providers returns at the time. It fails
// when a provider that writes has a problem. The error is one line: see [Text].
func New(c clock.PassiveClock, providers func() []Provider) healthz.HealthChecker {
	return healthz.NamedCheck(Name, func(*http.Request) error {
		now := c.Now()
		all := providers()
		for i := range all {
			if !all[i].Ready() {
				return errors.New(Text(all, now))
			}
		}
		return nil
	})
}

// Text describes every provider as of now, those that are well in a word.
func Text(providers []Provider, now time.Time) string {
	parts := make([]string, len(providers))
	for i := range providers {
		parts[i] = providers[i].text(now)
	}
	return strings.Join(parts, "; ")
}

func (p *Provider) text(now time.Time) string {
	who := fmt.Sprintf("kms provider %s (%s)", quoted(p.Names), p.role())
	if p.Problem == "" {
		return who + ": ok"
	}
	state := "not ready"
	if p.Ready() {
		state = "degraded"
	}
	return fmt.Sprintf("%s: %s, %s since %s (%d s): %v: %s",
		who, state, p.Problem, p.Since.UTC().Format(time.RFC3339), int(now.Sub(p.Since).Seconds()), p.Cause, p.consequence(now))
}

func (p *Provider) role() string {
	if len(p.Writes) == 0 {
		return "read only"
	}
	return "writes " + strings.Join(p.Writes, ", ")
}

// consequence is what works and what does not, and where to look.
func (p *Provider) consequence(now time.Time) string {
	if len(p.Writes) == 0 {
		return fmt.Sprintf("values under keys used before can be read, others perhaps not; look at the plugin at %s", p.Endpoint)
	}
	left := int(p.WritesUntil.Sub(now).Seconds())
	switch {
	case p.WritesUntil.IsZero():
		return fmt.Sprintf("there is no data key to write with, reads under keys used before go on; look at the plugin at %s", p.Endpoint)
	case left <= 0:
		return fmt.Sprintf("writes have stopped, reads go on; look at the plugin at %s", p.Endpoint)
	}
	return fmt.Sprintf("writes go on for %d s, reads for as long as it lasts; look at the plugin at %s", left, p.Endpoint)
}

func quoted(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(q, ", ")
}
