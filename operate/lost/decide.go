package lost

import (
	"cmp"
	"slices"
	"strings"
)

// Class sorts what is lost.
type Class string

// The classes. What is not known to be made again is to be restored.
const (
	MadeAgain Class = "made again"
	Restore   Class = "restore"
)

// Lost is an object that is lost.
type Lost struct {
	Object
	Class Class `json:"class"`
	// By is who makes it again, or why nobody has to. What an owner makes again may have
	// another value than before.
	By string `json:"by,omitempty"`
	// Hint is more of what is to be restored.
	Hint string `json:"hint,omitempty"`
	// Backup is the latest one that has it and opens it, and Type that of a Secret there.
	Backup         string `json:"backup,omitempty"`
	BackupRevision int64  `json:"backupRevision,omitempty"`
	Type           string `json:"type,omitempty"`
}

// Verdict is the answer in a word.
type Verdict string

// The verdicts. What is unknown wins: the list may not be the whole one then.
const (
	Nothing   Verdict = "nothing lost"
	Something Verdict = "lost"
	NotKnown  Verdict = "unknown"
)

// Answer is what is lost.
type Answer struct {
	Verdict Verdict `json:"verdict"`
	// Objects are those that are lost: what is to be restored first, and then by their
	// etcd keys.
	Objects []Lost `json:"objects"`
	// MadeAgain and Restore are how many there are, and InBackups how many of the latter
	// a backup could give back.
	MadeAgain int `json:"madeAgain"`
	Restore   int `json:"restore"`
	InBackups int `json:"inBackups"`
	// Backups is how many were looked into.
	Backups int `json:"backups"`
	// Unknown cannot be opened now, and may be at another time.
	Unknown   []Unknown   `json:"unknown"`
	Misplaced []Misplaced `json:"misplaced"`
	// Unjudged is how many objects are of resources that the configuration does not name
	// and another apiserver's may.
	Unjudged int64 `json:"unjudged,omitempty"`
	// Aggregated is how many do not open that an aggregated apiserver stores, whose
	// configuration may have what opens them. Only where the APIs are known is it told.
	Aggregated int64    `json:"aggregated,omitempty"`
	Notes      []string `json:"notes"`
}

// Decide sorts what was found. It changes nothing of it.
func Decide(f *Found) Answer {
	a := Answer{Verdict: Nothing, Objects: []Lost{}, Unknown: []Unknown{}, Misplaced: []Misplaced{}, Notes: []string{}, Backups: f.Backups, Unjudged: f.Unjudged, Aggregated: f.Aggregated}
	a.Unknown, a.Misplaced, a.Notes = append(a.Unknown, f.Unknown...), append(a.Misplaced, f.Misplaced...), append(a.Notes, f.Notes...)
	for _, o := range f.Lost {
		a.add(f.sort(o))
	}
	slices.SortStableFunc(a.Objects, func(x, y Lost) int {
		return cmp.Or(-cmp.Compare(x.Class, y.Class), strings.Compare(x.Resource, y.Resource), strings.Compare(x.Key, y.Key))
	})
	slices.SortStableFunc(a.Unknown, func(x, y Unknown) int {
		return cmp.Or(strings.Compare(x.Where, y.Where), strings.Compare(x.Resource, y.Resource))
	})
	switch {
	case len(a.Unknown) > 0:
		a.Verdict = NotKnown
	case len(a.Objects) > 0:
		a.Verdict = Something
	}
	return a
}

func (f *Found) sort(o Object) Lost {
	l := Lost{Object: o, Class: Restore}
	if l.By, l.Hint = f.who(o); l.By != "" {
		l.Class = MadeAgain
	}
	if c, known := f.Copies[o.Key]; known {
		l.Backup, l.BackupRevision = c.Backup, c.Revision
		if o.Resource == "secrets" {
			l.Type = c.Facts.Type
		}
	}
	return l
}

func (a *Answer) add(l Lost) {
	a.Objects = append(a.Objects, l)
	if l.Class == MadeAgain {
		a.MadeAgain++
		return
	}
	a.Restore++
	if l.Backup != "" {
		a.InBackups++
	}
}
