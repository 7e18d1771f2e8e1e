package overview

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// compare judges whether the apiservers agree.
func (j *judge) compare() {
	names := j.names()
	for _, name := range names {
		if why := j.seen.Clusters[name].Problem; why != "" {
			j.add(Unknown, Problem{Apiservers: []string{name}, What: "which cluster " + name + " is of is not known", Why: why})
		}
	}
	j.agree(names, "", subject{"is of another cluster than the others", "are of different clusters", "by the UID of the namespace kube-system; name those of one alone"},
		func(name string) string { return j.seen.Clusters[name].UID })
	if j.seen.SeparateConfigs {
		j.notes = append(j.notes, "the configurations are not compared, nor the keys in them, as each apiserver has one of its own")
		if untold := j.incomplete(); len(untold) > 0 && len(names) > 1 {
			j.notes = append(j.notes, "which resources "+list(untold)+has(len(untold))+"to write with KMS is not compared, as a kube-apiserver does not tell it")
		}
	} else {
		j.agree(names, "", subject{"has another configuration than the others", "have different configurations", ofConfigs},
			func(name string) string { return j.usable[name].ConfigHash })
	}
	for _, provider := range j.providers() {
		of := func(name string) rotation.Provider {
			if p := j.usable[name].Providers[provider]; !p.Silent {
				return p
			}
			return rotation.Provider{}
		}
		j.missing(names, provider)
		j.agree(names, provider, subject{"has another key_id of " + provider + " than the others", "have different key_ids of " + provider, ""},
			func(name string) string { return of(name).KeyID })
		j.agree(names, provider, subject{"has another role for " + provider + " than the others", "have different roles for " + provider, ""},
			func(name string) string { return string(of(name).Told.Role) })
		if j.seen.SeparateConfigs { // else the hashes of the configurations have said it
			j.agree(names, provider, subject{"writes other resources with " + provider + " than the others", "write different resources with " + provider, ""},
				func(name string) string { return list(slices.Sorted(slices.Values(of(name).Told.WritesFor))) })
		}
	}
}

const ofConfigs = "what the difference means, atrest diff says; if each has one of its own, as for a socket of its own, say --separate-configs"

// providers are those that any apiserver has, or seems to.
func (j *judge) providers() []string {
	all := map[string]bool{}
	for _, i := range j.usable {
		for name, p := range i.Providers {
			if !p.Silent {
				all[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// incomplete are the apiservers that do not tell all of their providers.
func (j *judge) incomplete() []string {
	return slices.DeleteFunc(j.names(), func(name string) bool { return j.usable[name].Complete })
}

// missing are the apiservers that do not have a provider that others have.
func (j *judge) missing(names []string, provider string) {
	var holders []string
	for _, name := range names {
		if p, has := j.usable[name].Providers[provider]; has && !p.Silent {
			holders = append(holders, name)
		}
	}
	for _, name := range names {
		i := j.usable[name]
		about := Problem{Apiservers: []string{name}, Provider: provider}
		switch {
		case slices.Contains(holders, name):
		case i.Complete:
			about.What, about.Why = fmt.Sprintf("%s has no provider %s", name, provider), list(holders)+has(len(holders))+"it"
			j.add(NotWell, about)
		default:
			about.What, about.Why = fmt.Sprintf("%s tells nothing of provider %s", name, provider), list(holders)+has(len(holders))+"it"
			j.add(Unknown, about)
		}
	}
}

func has(n int) string {
	if n == 1 {
		return " has "
	}
	return " have "
}

// subject is what apiservers have to have the same of: what is said of one that differs,
// and of several that do, and what to do.
type subject struct{ one, several, remedy string }

// agree judges whether all that tell something tell the same.
func (j *judge) agree(names []string, provider string, of subject, value func(string) string) {
	by, told := map[string][]string{}, 0
	for _, name := range names {
		if v := value(name); v != "" {
			by[v] = append(by[v], name)
			told++
		}
	}
	if len(by) < 2 {
		return
	}
	most := slices.MaxFunc(slices.Sorted(maps.Keys(by)), func(a, b string) int { return len(by[a]) - len(by[b]) })
	if 2*len(by[most]) <= told {
		about := Problem{Provider: provider, What: "the apiservers " + of.several}
		var parts []string
		for _, name := range names {
			v := value(name)
			if same := by[v]; v != "" && same[0] == name {
				about.Apiservers = append(about.Apiservers, same...)
				parts = append(parts, list(same)+has(len(same))+shown(v))
			}
		}
		about.Why = joined(strings.Join(parts, ", "), of.remedy)
		j.add(NotWell, about)
		return
	}
	for _, name := range names {
		if v := value(name); v != "" && v != most {
			j.add(NotWell, Problem{Apiservers: []string{name}, Provider: provider, What: name + " " + of.one,
				Why: joined(fmt.Sprintf("%s, and they have %s", shown(v), shown(most)), of.remedy)})
		}
	}
}

// shown is what apiservers tell, a hash in short.
func shown(told string) string {
	if hashed.IsName(told) {
		return hashed.Short(told)
	}
	return told
}

func joined(text, remedy string) string {
	if remedy == "" {
		return text
	}
	return text + "; " + remedy
}
