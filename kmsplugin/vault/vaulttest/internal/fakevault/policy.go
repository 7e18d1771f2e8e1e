package fakevault

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// policy is what some paths allow.
type policy struct {
	text  string
	rules map[string][]string // capabilities by pattern
}

var (
	rule    = regexp.MustCompile(`path\s+"([^"]*)"\s*\{\s*capabilities\s*=\s*\[([^\]]*)\]\s*\}`)
	comment = regexp.MustCompile(`(?m)#.*$`)
)

// parse reads the part of HCL that policies of the tests are of.
func parse(text string) (policy, error) {
	bare := comment.ReplaceAllString(text, "")
	if rest := strings.TrimSpace(rule.ReplaceAllString(bare, "")); rest != "" {
		return policy{}, fmt.Errorf("failed to parse policy: the fake reads paths with capabilities and nothing else, not %.40q", rest)
	}
	p := policy{text: text, rules: map[string][]string{}}
	for _, found := range rule.FindAllStringSubmatch(bare, -1) {
		for _, capability := range strings.Split(found[2], ",") {
			if capability = strings.Trim(strings.TrimSpace(capability), `"`); capability != "" {
				p.rules[found[1]] = append(p.rules[found[1]], capability)
			}
		}
	}
	return p, nil
}

func mustParse(text string) policy {
	p, err := parse(text)
	if err != nil {
		panic(err)
	}
	return p
}

// may reports whether the policies of a token allow a request: the closest pattern counts, with
// all that it has in any policy.
func (v *Vault) may(t *token, q *request) bool {
	return slices.Contains(v.capabilities(t, q.path), q.operation)
}

func (v *Vault) capabilities(t *token, path string) []string {
	if slices.Contains(t.policies, "root") {
		return []string{"create", "read", "update", "delete", "list", "sudo"}
	}
	closest, all := "", []string(nil)
	for _, name := range t.policies {
		for pattern, capabilities := range v.policies[name].rules {
			switch {
			case !covers(pattern, path):
			case pattern == closest:
				all = append(all, capabilities...)
			case closest == "" || closer(pattern, closest):
				closest, all = pattern, slices.Clone(capabilities)
			}
		}
	}
	if slices.Contains(all, "deny") {
		return nil
	}
	return all
}

// covers reports whether a path is of a pattern, where + is a segment and * at the end
// anything.
func covers(pattern, path string) bool {
	text := regexp.QuoteMeta(strings.TrimSuffix(pattern, "*"))
	text = "^" + strings.ReplaceAll(text, `\+`, `[^/]+`)
	if !strings.HasSuffix(pattern, "*") {
		text += "$"
	}
	matched, _ := regexp.MatchString(text, path)
	return matched
}

// closer reports whether a pattern says more of a path than another that covers it, too.
func closer(a, b string) bool {
	open := func(s string) bool { return strings.ContainsAny(s, "+*") }
	if open(a) != open(b) {
		return open(b)
	}
	return len(a) > len(b)
}

// defaultPolicy is what every token may do, of what there is here.
const defaultPolicy = `
path "auth/token/lookup-self" { capabilities = ["read"] }
path "auth/token/renew-self" { capabilities = ["update"] }
path "auth/token/revoke-self" { capabilities = ["update"] }
path "sys/capabilities-self" { capabilities = ["update"] }
path "sys/wrapping/wrap" { capabilities = ["update"] }
path "sys/wrapping/lookup" { capabilities = ["update"] }
path "sys/wrapping/unwrap" { capabilities = ["update"] }
`
