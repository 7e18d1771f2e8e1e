package overview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// behind is for how long an apiserver may go on under a key_id after its plugin names
// another. A write under it that is older tells nothing of what is written with now.
const behind = 3 * time.Minute

// judge goes through what was seen.
type judge struct {
	seen     Seen
	usable   map[string]rotation.Instance // what was told in this look
	problems []Problem
	notes    []string
	untold   []untold // what is to be read to know whether it can be
}

func (j *judge) all() {
	if len(j.seen.Apiservers) == 0 {
		j.add(Unknown, Problem{What: "no apiserver was asked", Why: "name each that there is"})
	}
	for _, name := range j.seen.Apiservers {
		j.look(name)
	}
	j.compare()
	j.others()
	j.silent()
	j.idle()
	j.stored()
}

func (j *judge) add(v Verdict, p Problem) {
	p.Verdict = v
	j.problems = append(j.problems, p)
}

// look judges one apiserver alone.
func (j *judge) look(name string) {
	if !j.see(name) {
		return
	}
	i, about := j.seen.Told[name], []string{name}
	if i.Problem != "" {
		j.add(NotWell, Problem{Apiservers: about, What: name + " says that it is not well", Why: i.Problem})
	}
	told := 0
	for _, provider := range slices.Sorted(maps.Keys(i.Providers)) {
		if p := i.Providers[provider]; !p.Silent {
			told++
			j.provider(name, provider, p)
		}
	}
	if told == 0 && !i.Complete {
		j.add(Unknown, Problem{Apiservers: about, What: name + " tells nothing of any plugin",
			Why: "so nothing is known of its health: its configuration has no KMS v2 provider, or no plugin has named a key_id"})
	}
}

// see judges whether an apiserver was seen, with the configuration that it is to have.
func (j *judge) see(name string) bool {
	i, about := j.seen.Told[name], []string{name}
	switch {
	case i.CheckedAt.IsZero():
		j.add(Unknown, Problem{Apiservers: about, What: name + " cannot be seen", Why: cmp.Or(i.Problem, "it never answered")})
		return false
	case !j.seen.fresh(i):
		j.add(Unknown, Problem{Apiservers: about, What: name + " cannot be seen now",
			Why: fmt.Sprintf("what it told is of %s: %s", utc(i.CheckedAt), cmp.Or(i.Problem, "it did not answer since"))})
		return false
	}
	j.usable[name] = i
	if i.ConfigHash == "" {
		j.add(Unknown, Problem{Apiservers: about, What: name + " tells of no configuration in effect", Why: "has it --encryption-provider-config?"})
	}
	if i.Pending != "" {
		j.add(NotWell, Problem{Apiservers: about, What: name + " has not taken its file into use as it is now", Why: i.Pending})
	}
	return true
}

// provider judges one provider of an apiserver alone.
func (j *judge) provider(apiserver, name string, p rotation.Provider) {
	about := Problem{Apiservers: []string{apiserver}, Provider: name}
	left := j.seen.left(p)
	switch {
	case !p.Healthy:
		about.What = fmt.Sprintf("%s finds the plugin of %s not well", apiserver, name)
		about.Why = j.illness(p)
		j.add(NotWell, about)
	case p.Told.Role == rotation.RoleWrites && left <= 0:
		about.What = fmt.Sprintf("%s has nothing to write with of %s", apiserver, name)
		about.Why = "writes of " + cmp.Or(strings.Join(p.Told.WritesFor, ", "), "its resources") + " fail: see its log"
		j.add(NotWell, about)
	case p.KeyID == "":
		about.What = fmt.Sprintf("%s knows no key_id of %s", apiserver, name)
		about.Why = "its plugin has named none, as none of KMS v1 does, so whether all have the same key is not known"
		j.add(Unknown, about)
	}
	if p.KeyID == "" || p.WroteKeyID == "" || p.KeyID == p.WroteKeyID {
		return
	}
	about.Why = fmt.Sprintf("at %s under %s, and its plugin names %s", utc(p.WroteAt), hashed.Short(p.WroteKeyID), hashed.Short(p.KeyID))
	if j.seen.Ended.Sub(p.WroteAt) <= behind {
		about.What = fmt.Sprintf("%s writes under another key_id than the plugin of %s names", apiserver, name)
		j.add(NotWell, about)
		return
	}
	about.What = fmt.Sprintf("%s has not written since the plugin of %s names another key_id", apiserver, name)
	about.Why = "last " + about.Why + ": what it writes under now was not seen"
	j.add(Unknown, about)
}

// illness is what is wrong with a plugin, and what goes on.
func (j *judge) illness(p rotation.Provider) string {
	why := cmp.Or(strings.ReplaceAll(p.Problem, "_", " "), "it does not say why")
	if !p.Told.Since.IsZero() {
		why += " since " + utc(p.Told.Since)
	}
	if p.Told.Message != "" {
		why += ": " + p.Told.Message
	}
	if p.Told.Role != rotation.RoleWrites {
		return why
	}
	if left := j.seen.left(p); left > 0 {
		return fmt.Sprintf("%s; writes go on for %.0f s", why, left)
	}
	return why + "; writes have stopped"
}

// others judges what there is that nobody asked.
func (j *judge) others() {
	for _, name := range slices.Sorted(maps.Keys(j.seen.Unnamed)) {
		j.add(Unknown, Problem{What: name + " is not named", Why: j.seen.Unnamed[name]})
	}
	if j.seen.Untold != "" {
		j.add(Unknown, Problem{What: "whether there are other apiservers is not known", Why: j.seen.Untold})
	}
}

// silent notes the providers that are probably gone.
func (j *judge) silent() {
	by := map[string][]string{}
	for _, name := range j.names() {
		for provider, p := range j.usable[name].Providers {
			if p.Silent {
				by[provider] = append(by[provider], name)
			}
		}
	}
	for _, provider := range slices.Sorted(maps.Keys(by)) {
		j.notes = append(j.notes, fmt.Sprintf("%s was not heard of for minutes by %s: it is probably in the configuration no longer, which a kube-apiserver does not tell",
			provider, list(by[provider])))
	}
}

// idle notes that nothing is written with KMS.
func (j *judge) idle() {
	providers, writes, tells, wrote := 0, false, len(j.usable) > 0, false
	for _, i := range j.usable {
		tells = tells && i.Complete
		for _, p := range i.Providers {
			providers++
			tells = tells && p.Told.Role != ""
			writes = writes || p.Told.Role == rotation.RoleWrites
			wrote = wrote || !p.Told.LastWrite.IsZero() || p.WroteKeyID != ""
		}
	}
	switch {
	case tells && !writes:
		j.notes = append(j.notes, "nothing is written with KMS: what is written is under keys that are in the file, or plain")
	case providers > 0 && !wrote:
		j.notes = append(j.notes, "no apiserver has written anything yet, as far as they tell")
	}
}

// names are those of the apiservers that were seen, in their order.
func (j *judge) names() []string {
	return slices.DeleteFunc(slices.Clone(j.seen.Apiservers), func(name string) bool { _, usable := j.usable[name]; return !usable })
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// list is names in words.
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
