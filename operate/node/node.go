package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/filelock"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/preflight"
)

// Options are where a node has what, and how often it looks.
type Options struct {
	// Bundles is the folder that a bundle comes in, as [bundle.ReadFolder] reads it. It may come
	// and go.
	Bundles string
	// Expected gives, of a bundle, the hashes of the key_ids that its plugins named when it was
	// tried, by keyID; nil where nobody tried it.
	Expected func(*bundle.Bundle) (map[string]string, error)
	// Steps are what else a plugin is tried for, at the path of its socket, before its bundle is
	// accepted. It may be nil.
	Steps func(p *bundle.Plugin, socket string) []preflight.Step
	// State is a folder on the node's own disk, and Run one in memory, each of this node alone.
	State, Run string
	// Sockets is the folder of the sockets on this machine, and empty that which the bundle names.
	Sockets string
	// ConfigFile is the file that the apiserver has as --encryption-provider-config.
	ConfigFile string
	// Apiservers are all that read it on this node.
	Apiservers []Asker
	Runner     Runner
	Clock      clock.WithTicker
	// Log is given each line, without its end, from one goroutine.
	Log func(line string)
	// Every is the time between two rounds, and AskEvery between two questions to a plugin or an
	// apiserver; Timeout bounds one to a plugin.
	Every, AskEvery, Timeout time.Duration
	// Silence is for how long a plugin that had the stable name may answer nothing while it runs, before
	// another one is started to take its place; 0 is for ever.
	Silence time.Duration
	// Grace is for how long an apiserver may go on with a former file, and Patience how long a
	// plugin that was told to end may take.
	Grace, Patience time.Duration
	// Drain has the plugins end with the node. Without it they stay with their apiserver.
	Drain bool
}

// Node makes what a bundle asks for so. It is for one goroutine, but for [Node.Report].
type Node struct {
	o     Options
	lock  *filelock.Lock
	disk  instances
	wake  chan struct{}
	ends  sync.WaitGroup // goroutines that wait for the end of instances
	told  atomic.Pointer[Report]
	known struct { // of one round
		candidate *bundle.Bundle
		expected  map[string]string
		file      File
		content   []byte
		plugins   []Plugin
		blind     bool // which instances there are could not be read
	}

	kept    kept
	damaged bool // what is on the disk could not be read
	placed  atomic.Int64

	own        map[string]*own // by instance
	apiservers []*watch[toldApiserver]
	attempts   map[Start]*attempt
	restarts   map[string]int   // by keyID
	words      map[Start]string // what one that ended by itself said last
	problems   map[string]string
	trials     map[Start]*trial // of the latest candidate
}

// own is what a node has for one instance, beside its folder.
type own struct {
	instance
	asks    *watch[account]
	lines   *lines
	ending  time.Time // since when it has been told to end, zero if it was not
	hard    bool
	silent  bool                 // it is [Silent]
	counted bool                 // that it ended by itself, or was given up
	secrets secrets              // what it was given, as far as that is known
	changed map[string]time.Time // since when a folder of files is a former one
}

const (
	keptName = "bundles"
	lockName = "lock"
)

// A lock is tried so often, with a pause after each, by the real clock: for a second.
const (
	lockTries = 20
	lockPause = 50 * time.Millisecond
)

// acquire takes the lock at path. What a node that was killed had just begun to start holds it until it begins
// its program, for milliseconds.
func acquire(path string) (lock *filelock.Lock, err error) {
	for range lockTries {
		if lock, err = filelock.TryAcquire(path); !errors.Is(err, filelock.ErrHeld) {
			return lock, err
		}
		time.Sleep(lockPause)
	}
	return nil, err
}

// New is a node on its folders, which it makes if they are not there. Another one that runs on
// the same ones is an error. [Node.Run] has to be called.
func New(o Options) (*Node, error) {
	for _, folder := range []string{o.State, o.Run} {
		if err := ownFolder(folder); err != nil {
			return nil, err
		}
	}
	lock, err := acquire(filepath.Join(o.Run, lockName))
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("another node runs in %s: %w: end that one, or name another folder", o.Run, err)
	}
	if err != nil {
		return nil, err
	}
	n := &Node{o: o, lock: lock, disk: instances{filepath.Join(o.Run, "instances")}, wake: make(chan struct{}, 1),
		own: map[string]*own{}, attempts: map[Start]*attempt{}, restarts: map[string]int{}, problems: map[string]string{}, words: map[Start]string{}, trials: map[Start]*trial{}}
	n.kept, err = readKept(n.keptPath())
	if err != nil {
		n.damaged = true
		n.trouble("bundles on disk", fmt.Errorf("the last good bundle in %s: %w", n.keptPath(), err))
	}
	n.told.Store(&Report{})
	return n, nil
}

func (n *Node) keptPath() string { return filepath.Join(n.o.State, keptName) }

// ownFolder makes a folder, or checks that it is nobody else's.
func ownFolder(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("folder %q: write its path from / on", path)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is no folder: name another", path)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others may look into folder %s (%s), where credentials are: chmod 0700 %s", path, info.Mode(), path)
	}
	return checkOwner(path, info)
}

// guarded is an error if somebody else could put another into the place of a socket.
func guarded(folder string) error {
	info, err := os.Stat(folder)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others may write to %s (%s), and lead the apiserver to a plugin of theirs: chmod go-w %s", folder, info.Mode(), folder)
	}
	return checkOwner(folder, info)
}

// Run goes round until ctx ends, and then has the plugins stay or, with Drain, end.
func (n *Node) Run(ctx context.Context) error {
	for _, asker := range n.o.Apiservers {
		a := &apiserver{asker: asker, clk: n.o.Clock, placed: &n.placed}
		n.apiservers = append(n.apiservers, watching(ctx, n.o.Clock, n.o.AskEvery, a.ask, n.again))
	}
	ticker := n.o.Clock.NewTicker(n.o.Every)
	defer ticker.Stop()
	defer n.ends.Wait()
	for ctx.Err() == nil {
		if n.round(ctx) { // what was done may make more possible at once
			n.again()
		}
		select {
		case <-ctx.Done():
		case <-ticker.C():
		case <-n.wake:
		}
	}
	var err error
	if n.o.Drain {
		err = n.drain(ctx)
	}
	for _, w := range n.apiservers {
		w.end()
	}
	for _, one := range n.own {
		one.asks.end()
	}
	for _, t := range n.trials {
		t.end()
	}
	return errors.Join(err, n.lock.Release())
}

// again has a round follow soon.
func (n *Node) again() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Report is what was found in the latest round. It is read-only, and safe for concurrent use.
func (n *Node) Report() *Report { return n.told.Load() }

// round observes, decides and does, and reports whether anything was done that changes what is
// next.
func (n *Node) round(ctx context.Context) (changed bool) {
	o := n.observe(ctx)
	if n.known.blind {
		n.told.Store(n.report(o, Decision{Waits: []string{"which plugins run is not known, so nothing is done"}}))
		return false
	}
	decision := Decide(o)
	for _, action := range decision.Actions {
		err := n.do(action)
		n.trouble(string(action.Verb)+" "+action.KeyID, err)
		changed = changed || err == nil
	}
	if changed { // what else that asks for is not known yet
		decision.Waits = append(decision.Waits, "what was just done is looked at next")
	}
	n.settle(decision)
	n.forgetWords(o)
	n.listen()
	n.told.Store(n.report(o, decision))
	return changed
}

// trouble remembers what is wrong with something, and tells it when that changes. It is over
// when err is nil.
func (n *Node) trouble(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if n.problems[what] == text {
		return
	}
	if text == "" {
		delete(n.problems, what)
		n.o.Log("over: " + what)
		return
	}
	n.problems[what] = text
	n.o.Log("problem: " + what + ": " + text)
}

// settle ends the troubles with what is no longer tried.
func (n *Node) settle(d Decision) {
	tried := map[string]bool{"bundles on disk": true, "folder of bundles": true, "sockets": true, "configuration file": true, "instances": true}
	for _, a := range d.Actions {
		tried[string(a.Verb)+" "+a.KeyID] = true
	}
	for what := range n.problems {
		if !tried[what] && !n.waits(what) {
			n.trouble(what, nil)
		}
	}
}
