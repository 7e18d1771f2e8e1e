package healthz

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
)

// Name is the check's name, and a contract with all who exclude it by name:
// /readyz?exclude=kms-providers.
const Name = "kms-providers"

// Check is the check of what is told at the time. It fails when a provider is not
// ready, and when all has ended. The error is [Status.Line].
func Check(tell func() Status) healthz.HealthChecker {
	return healthz.NamedCheck(Name, func(*http.Request) error {
		s := tell()
		if s.Ended || slices.ContainsFunc(s.Providers, func(p Provider) bool { return !p.Ready() }) {
			return errors.New(s.Line())
		}
		return nil
	})
}

// Line is one line about every provider, with a word for those that are well.
func (s Status) Line() string {
	if s.Ended {
		return "encryption at rest has ended in this server: nothing is read or written any longer"
	}
	parts := make([]string, len(s.Providers))
	for i := range s.Providers {
		parts[i] = s.Providers[i].line(s.At)
	}
	return strings.Join(parts, "; ")
}

func (p *Provider) line(now time.Time) string {
	who := fmt.Sprintf("kms provider %s (%s)", quoted(p.Names), p.use())
	if p.State == Ready {
		return who + ": ok"
	}
	return fmt.Sprintf("%s: %s, %s since %s (%d s): %s: %s; look at the plugin at %s", who, strings.ReplaceAll(string(p.State), "_", " "),
		p.Problem, p.Since.UTC().Format(time.RFC3339), int(now.Sub(p.Since).Seconds()), p.Message, p.consequence(), p.Endpoint)
}

func (p *Provider) use() string {
	if p.Role == Reads {
		return "read only"
	}
	return "writes " + strings.Join(p.WritesFor, ", ")
}

// consequence is what works and what does not.
func (p *Provider) consequence() string {
	left := int(p.WritesLeft)
	switch {
	case p.Role == Reads:
		return "values under keys used before can be read, others perhaps not"
	case p.WritesUntil.IsZero():
		return "there is no data key to write with, reads under keys used before go on"
	case left <= 0:
		return "writes have stopped, reads go on"
	}
	return fmt.Sprintf("writes go on for %d s, reads for as long as it lasts", left)
}

func quoted(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(q, ", ")
}
