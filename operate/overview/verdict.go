package overview

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is how something is.
type Verdict string

// The verdicts. What is not well wins over what is unknown, and that over what is well.
const (
	Well    Verdict = "well"
	NotWell Verdict = "not well"
	Unknown Verdict = "unknown"
)

// Problem is why not all is well.
type Problem struct {
	// Verdict is [NotWell] or [Unknown].
	Verdict Verdict `json:"verdict"`
	// Apiservers are those that it is about, and Provider the one that it is about, if
	// it is about some.
	Apiservers []string `json:"apiservers,omitempty"`
	Provider   string   `json:"provider,omitempty"`
	// What is the case, in a few words that name who, and Why: more of it, and what to
	// do.
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
}

// String is one line.
func (p Problem) String() string {
	if p.Why == "" {
		return p.What
	}
	return p.What + ": " + p.Why
}

// verdict is that of all problems.
func verdict(problems []Problem) Verdict {
	is := Well
	for _, p := range problems {
		switch p.Verdict {
		case NotWell:
			return NotWell
		case Well:
		default: // what is no verdict is not known either
			is = Unknown
		}
	}
	return is
}

// mostNamed is how many problems are named in the summary.
const mostNamed = 3

// summary is one line about the apiservers.
func summary(s Seen, problems []Problem) string {
	is := verdict(problems)
	switch n := len(s.Apiservers); {
	case is == Well && n == 1:
		return "The one apiserver is well."
	case is == Well && s.SeparateConfigs:
		return fmt.Sprintf("All %d apiservers are well, and agree on KMS as far as they tell.", n)
	case is == Well:
		return fmt.Sprintf("All %d apiservers agree and are well.", n)
	}
	var named []string
	for _, p := range problems {
		if p.Verdict == is {
			named = append(named, p.What)
		}
	}
	left := len(problems) - min(len(named), mostNamed)
	named = slices.Clone(named[:min(len(named), mostNamed)])
	if left > 0 {
		named = append(named, fmt.Sprintf("and %d more", left))
	}
	begin := "Not well: "
	if is == Unknown {
		begin = "Unknown: "
	}
	return begin + strings.Join(named, "; ") + "."
}
