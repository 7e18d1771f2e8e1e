package node

import "time"

// Observation is all that a decision goes by. It is read and never changed. Times are of
// one clock, and of one run of the node.
type Observation struct {
	Now time.Time
	// Candidate is the bundle in the folder, nil if none can be read there.
	Candidate *Wanted
	// Accepted are the bundles on the node's own disk, newest first. The first is, or is to be,
	// in effect; the others are there for keyIDs that an apiserver may still need.
	Accepted []Wanted
	// File is the apiserver's configuration file as it is now.
	File File
	// Removed is what that reads with, by resources, and the candidate does not: what is stored under it
	// would be unreadable. It is looked at while nothing is accepted.
	Removed []string
	// Plugins are all instances that are known to be this node's own.
	Plugins []Plugin
	// NotBefore is until when nothing is started, by what would be.
	NotBefore map[Start]time.Time
	// Refused is why the trial of what the candidate would start has ended for good, by that.
	Refused map[Start]string
	// Apiservers are those of this node. Without one nothing is ever proven not to be needed.
	Apiservers []Apiserver
	// Grace is for how long each apiserver has to have told of the new file before what only
	// the former one names may go: it may close that late.
	Grace time.Duration
	// Fresh is how old an answer of an apiserver may be.
	Fresh time.Duration
}

// Wanted is what a bundle asks for, by hashes: equal ones ask for the same. Hash names the bundle, its
// revision and its content.
type Wanted struct {
	Hash     string
	Revision uint64
	// Config is the hash of the configuration file.
	Config string
	// Keys are the plugins, by keyID.
	Keys map[string]Key
}

// Key is what a bundle asks for under a keyID.
type Key struct {
	// Settings name the program, its arguments and, of one of somebody else's, its files: others take another process.
	Settings string
	// Files name the credentials and the CA: others of one of ours are put in place while it runs.
	Files string
	// KeyIDHash is that of the key_id which the plugin named when the candidate was tried or, of
	// an accepted bundle, which it named last when it was well; empty if that is not told.
	KeyIDHash string
}

// File is a file as it is.
type File struct {
	// Known is false if it could not be read.
	Known bool
	// Hash is that of its content, empty if there is no file.
	Hash string
	// KeyIDs are those whose sockets it names.
	KeyIDs []string
}

// State is how far an instance is.
type State int

// The states of an instance.
const (
	// Starting is one that runs, and of which nothing was heard yet.
	Starting State = iota
	// Serving is one that answered on its own socket.
	Serving
	// Silent is one that once had the stable name, runs, and has answered nothing for so long that it is not
	// waited for. Another one is started beside it, and has its place once that answers.
	Silent
	// Ending is one that was told to end and runs still.
	Ending
	// Ended is one that is gone.
	Ended
)

// Plugin is an instance: one process, on a socket of its own.
type Plugin struct {
	// Instance names it, at random.
	Instance string
	// KeyID is the number that it is for: not a key_id.
	KeyID string
	// Settings are those that it was started with, Files those that it has now.
	Settings, Files string
	State           State
	// Well tells that it encrypts and decrypts, as last asked; KeyIDHash is that of the key_id
	// that it named then.
	Well      bool
	KeyIDHash string
	// Linked tells that the stable name of its keyID leads to it now, and Named that it once
	// did: an apiserver may have a connection to it.
	Linked, Named bool
	// Tried is what its trial for the candidate has found, while it is well.
	Tried Tried
}

// Tried is what became of the trial of an instance.
type Tried struct {
	// Passed tells that it may be used, and in the place of the one that the accepted bundles ask for.
	Passed bool
	// Why is what it waits for, if that is known.
	Why string
}

// live tells that it runs and was not told to end.
func (p Plugin) live() bool { return p.State == Starting || p.State == Serving }

// Start is what may be started.
type Start struct{ KeyID, Settings string }

// starts are all that a bundle asks for.
func (o Observation) starts() map[Start]bool {
	all := map[Start]bool{}
	for _, w := range o.wanted(o.Candidate) {
		for keyID, key := range w.Keys {
			all[Start{keyID, key.Settings}] = true
		}
	}
	return all
}

// wanted are the accepted bundles, and a candidate unless it is nil.
func (o Observation) wanted(candidate *Wanted) []*Wanted {
	var all []*Wanted
	for i := range o.Accepted {
		all = append(all, &o.Accepted[i])
	}
	if candidate != nil {
		all = append(all, candidate)
	}
	return all
}

// Apiserver is what one of this node's own told, last.
type Apiserver struct {
	Name string
	// Problem is why it is not known what it has in effect: it was not reached, or it is another
	// one than it should be.
	Problem string
	// Config is the hash of the configuration in effect there, At when it told that, and Since
	// from when on every answer told the same of the same process. They are zero if it was not asked since
	// the file was put in place.
	Config    string
	At, Since time.Time
}
