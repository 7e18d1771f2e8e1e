package lost

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
)

// Backup is one that was counted.
type Backup struct {
	Name string
	// Time is that of the file.
	Time time.Time
	// Report is of its whole keyspace, nil if it could not be read, and Problem why.
	Report  *audit.Report
	Problem string
}

// Key is a key, as far as what is stored under it names it.
type Key struct {
	Kind config.Kind `json:"kind"`
	Name string      `json:"name,omitempty"`
	// KeyIDHash is the hash of the key_id, for KMS v2. KMS v1 stores none: any version of
	// the provider's key may be needed.
	KeyIDHash string `json:"keyIDHash,omitempty"`
}

// Need is that of a key by one backup.
type Need struct {
	Key
	Objects int64 `json:"objects"`
}

// BackupNeeds is what one backup needs.
type BackupNeeds struct {
	Backup   string    `json:"backup"`
	Time     time.Time `json:"fileTime,omitzero"`
	Revision int64     `json:"revision,omitempty"`
	Objects  int64     `json:"objects"`
	// Plaintext is how many objects need no key.
	Plaintext int64  `json:"plaintext"`
	Keys      []Need `json:"keys"`
	// Problem is what is not known of it.
	Problem string `json:"problem,omitempty"`
}

// KeyNeeds is which backups need a key: it has to be kept as long as one of them is.
type KeyNeeds struct {
	Key
	// Backups are named with the latest first, by their revisions; in their own order if
	// which is the latest is not known.
	Backups []string `json:"backups"`
	Objects int64    `json:"objects"`
	// Latest is the time of the latest backup's file, zero if that is not known.
	Latest time.Time `json:"latestFileTime,omitzero"`
}

// Needs is which backup needs which key, and the other way round.
type Needs struct {
	Backups []BackupNeeds `json:"backups"`
	Keys    []KeyNeeds    `json:"keys"`
	// Problems are why the answer may lack something, a line for each backup.
	Problems []string `json:"problems"`
}

// NeedsOf sorts what was counted. The backups stay in their order.
func NeedsOf(backups []Backup) Needs {
	n := Needs{Backups: []BackupNeeds{}, Keys: []KeyNeeds{}, Problems: []string{}}
	for _, b := range backups {
		needs := needsOf(b)
		n.Backups = append(n.Backups, needs)
		if needs.Problem != "" {
			n.Problems = append(n.Problems, b.Name+": "+needs.Problem)
		}
	}
	for _, b := range n.Backups {
		for _, need := range b.Keys {
			n.add(b, need)
		}
	}
	n.sortByAge()
	slices.SortFunc(n.Keys, func(a, b KeyNeeds) int { return byKeyName(a.Key, b.Key) })
	return n
}

func (n *Needs) add(b BackupNeeds, need Need) {
	i := slices.IndexFunc(n.Keys, func(k KeyNeeds) bool { return k.Key == need.Key })
	if i < 0 {
		i = len(n.Keys)
		n.Keys = append(n.Keys, KeyNeeds{Key: need.Key})
	}
	n.Keys[i].Backups = append(n.Keys[i].Backups, b.Backup)
	n.Keys[i].Objects += need.Objects
}

// sortByAge puts the latest backup of each key first. Where two of them disagree nobody
// knows which that is, and a key must not go by it.
func (n *Needs) sortByAge() {
	of := func(backup string) (d dated) {
		i := slices.IndexFunc(n.Backups, func(b BackupNeeds) bool { return b.Backup == backup })
		return dated{backup, n.Backups[i].Revision, n.Backups[i].Time}
	}
	told := map[string]bool{}
	for i := range n.Keys {
		k := &n.Keys[i]
		var all []dated
		for _, backup := range k.Backups {
			all = append(all, of(backup))
		}
		if why := disagreeing(all); why != "" {
			if !told[why] {
				n.Problems = append(n.Problems, why)
			}
			told[why] = true
			continue
		}
		slices.SortStableFunc(all, dated.compare)
		k.Latest = all[0].time
		for j := range all {
			k.Backups[j] = all[j].name
		}
	}
}

// dated is a backup as far as it tells its age.
type dated struct {
	name     string
	revision int64
	time     time.Time
}

// compare has the latest first.
func (d dated) compare(o dated) int {
	return cmp.Or(-cmp.Compare(d.revision, o.revision), -d.time.Compare(o.time))
}

// disagreeing tells of two backups of which one has the later file and the other one the higher
// revision, as when etcd was restored between them, which sets the revision back, or when
// a file was copied, which changes its time; nothing if there are none.
func disagreeing(all []dated) string {
	all = slices.Clone(all)
	slices.SortStableFunc(all, dated.compare)
	for i := 1; i < len(all); i++ {
		higher, later := all[i-1], all[i]
		if higher.revision > later.revision && !higher.time.IsZero() && higher.time.Before(later.time) {
			return fmt.Sprintf("which of %s and %s is the latest is not known: the first has the higher revision, and the file of the second is later, as after a restore of etcd, which sets "+
				"the revision back, or when a file was copied: see when they were made, and set the times of the files, or name only those from before the restore or from after it", higher.name, later.name)
		}
	}
	return ""
}

func needsOf(b Backup) BackupNeeds {
	n := BackupNeeds{Backup: b.Name, Time: b.Time, Keys: []Need{}, Problem: b.Problem}
	switch {
	case b.Problem != "":
		return n
	case b.Report == nil:
		n.Problem = "it was not looked into"
		return n
	}
	n.Revision, n.Objects = b.Report.Revision, b.Report.Objects
	if err := b.Report.NotEmpty(); err != nil {
		n.Problem = err.Error()
	}
	unread := int64(0)
	for _, resource := range b.Report.Resources {
		for _, c := range resource.Forms {
			switch c.Kind {
			case audit.Plaintext:
				n.Plaintext += c.Objects
			case audit.Unknown, audit.Undecodable:
				unread += c.Objects
			default:
				n.need(Key{c.Kind, c.Name, c.KeyIDHash}, c.Objects)
			}
		}
	}
	if unread > 0 {
		n.Problem = fmt.Sprintf("of %d of its objects it cannot be told which key they need: atrest audit lists them", unread)
	}
	slices.SortFunc(n.Keys, func(a, b Need) int { return byKeyName(a.Key, b.Key) })
	return n
}

func (n *BackupNeeds) need(k Key, objects int64) {
	for i := range n.Keys {
		if n.Keys[i].Key == k {
			n.Keys[i].Objects += objects
			return
		}
	}
	n.Keys = append(n.Keys, Need{k, objects})
}

func byKeyName(a, b Key) int {
	return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name), strings.Compare(a.KeyIDHash, b.KeyIDHash))
}
