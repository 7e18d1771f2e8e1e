package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// newer refuses a bundle that is older than the one in effect: a folder that was put back would
// take away keys that objects are stored under by now.
func (d *decider) newer(c *Wanted) bool {
	switch {
	case d.current == nil:
		return d.covers(c)
	case c.Revision > d.current.Revision:
		return true
	case c.Revision == d.current.Revision:
		d.wait("the folder has another bundle of revision %d than the one in effect: give each change a higher revision", c.Revision)
	default:
		d.wait("the folder has revision %d, and revision %d is in effect: to go back, give the old content a higher revision", c.Revision, d.current.Revision)
	}
	return false
}

// covers refuses, where it is not known what was in effect, a bundle without all that the file in place
// reads with: it is an older one, or of another cluster, and a key may be nowhere but in that file.
func (d *decider) covers(c *Wanted) bool {
	if !d.o.File.Known {
		d.wait("revision %d waits: no bundle is kept here, and the configuration file in place cannot be read", c.Revision)
		return false
	}
	var lacks []string
	for _, keyID := range d.o.File.KeyIDs {
		if !hasKey(c, keyID) {
			lacks = append(lacks, "keyID "+keyID)
		}
	}
	if lacks = append(lacks, d.o.Removed...); len(lacks) > 0 {
		d.wait("revision %d waits: no bundle is kept here, and the configuration file in place names %s, which it does not have, or on another socket: put the bundle into the folder that has it, or move the file away, if nothing is stored under that, or if \"atrest bundle try --stored\" shows that what is stored opens by the other socket", c.Revision, strings.Join(lacks, ", "))
		return false
	}
	return true
}

// accept makes the candidate the bundle in effect if all that it asks for anew is there.
func (d *decider) accept() {
	if d.candidate == nil {
		return
	}
	waits := len(d.out.Waits)
	for _, keyID := range slices.Sorted(maps.Keys(d.candidate.Keys)) {
		if why := d.untried(keyID); why != "" {
			d.wait("revision %d waits for keyID %s: %s", d.candidate.Revision, keyID, why)
		}
	}
	if len(d.o.Accepted) >= maxAccepted {
		d.wait("revision %d waits: %d former ones have keyIDs that an apiserver may still need", d.candidate.Revision, len(d.o.Accepted)-1)
	}
	if len(d.out.Waits) == waits {
		d.do(Action{Verb: AcceptBundle, Bundle: d.candidate.Hash})
	}
}

// maxAccepted bounds the bundles on the disk.
const maxAccepted = 16

// untried is why a keyID of the candidate is not yet good, empty if it is.
func (d *decider) untried(keyID string) string {
	key := d.candidate.Keys[keyID]
	p, there := d.chosen(keyID, key.Settings)
	now, _, runs := d.accepted(keyID)
	switch as := runs && now.Settings == key.Settings; {
	case as && there && p.Well:
		return otherKey(p, key.KeyIDHash, "the bundle was tried with")
	case as: // it runs already, and new credentials may be what it needs
		return ""
	case d.refused(keyID, key):
		return "it is refused, until the bundle has another one: " + d.o.Refused[Start{keyID, key.Settings}]
	case !there || p.State != Serving:
		return "its plugin does not answer yet"
	case !p.Well:
		return "its plugin answers, and does not work"
	case p.Files != key.Files:
		return "its plugin has other files than it is to be tried with, and is started anew"
	case !p.Tried.Passed:
		return cmp.Or(p.Tried.Why, "its plugin works, and is being tried")
	}
	why := otherKey(p, key.KeyIDHash, "the bundle was tried with")
	if why == "" && !runs {
		why = d.otherThanNamed(p)
	}
	return why
}

// otherThanNamed is why a plugin may have another key than one that an apiserver may be connected to,
// and of which no bundle tells.
func (d *decider) otherThanNamed(p Plugin) string {
	for _, old := range d.instances(p.KeyID) {
		if !old.Named || old.Instance == p.Instance || old.State == Ended {
			continue
		}
		if old.KeyIDHash == "" {
			return "it is not known which key the one has that it takes the place of, which has to work once"
		}
		if why := otherKey(p, old.KeyIDHash, "the one has that it takes the place of: another key needs another keyID"); why != "" {
			return why
		}
	}
	return ""
}

func otherKey(p Plugin, want, who string) string {
	if want == "" || want == p.KeyIDHash {
		return ""
	}
	return fmt.Sprintf("its plugin names key_id %s, and not %s, which %s", p.KeyIDHash, want, who)
}
