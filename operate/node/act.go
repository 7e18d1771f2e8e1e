package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/wholefile"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// do does one thing.
func (n *Node) do(a Action) error {
	_, again := n.problems[string(a.Verb)+" "+a.KeyID]
	if a.Verb != SyncFiles && a.Verb != StartPlugin && !again { // they tell more of it
		n.o.Log(fmt.Sprintf("%s keyID %s %s%s", a.Verb, orNone(a.KeyID), a.Instance, a.Bundle))
	}
	switch a.Verb {
	case StartPlugin:
		return n.start(a)
	case LinkPlugin:
		return n.link(n.own[a.Instance])
	case SyncFiles:
		return n.sync(n.own[a.Instance], a.Bundle)
	case AcceptBundle:
		return n.keep(n.kept.accepting(n.known.candidate))
	case RememberKey:
		now := n.own[a.Instance].asks.now()
		if now.sample == nil {
			return fmt.Errorf("%s has wrapped nothing", a.Instance)
		}
		return n.keep(n.kept.remembering(a.KeyID, seenKey{envelope.HashKeyID(now.sample.Wrapped.KeyID), now.sample}))
	case PlaceFile:
		return n.place(a.Bundle)
	case ForgetKey:
		return n.keep(n.kept.forgetting(a.KeyID))
	case StopPlugin:
		return n.stop(n.own[a.Instance])
	case ClearPlugin:
		return n.clear(n.own[a.Instance])
	}
	return fmt.Errorf("%q is nothing that can be done", a.Verb)
}

// asks are the bundles of which plugins are started: the candidate is first, so that what is new
// in it is tried.
func (n *Node) asks(name string) (bundles, *bundle.Bundle) {
	if b := n.known.candidate; b != nil && nameOf(b) == name {
		return append(bundles{b}, n.kept.bundles...), b
	}
	for _, b := range n.kept.bundles {
		if nameOf(b) == name {
			return n.kept.bundles, b
		}
	}
	return nil, nil
}

// attempt is how often something was started in a row.
type attempt struct {
	times     int
	at        time.Time
	notBefore time.Time
}

// Between two starts of one plugin there is this time at least, twice as much each time, and no
// more than that; one that lasted so long is started anew at once.
const (
	firstPause = time.Second
	lastPause  = time.Minute
	lasted     = 5 * time.Minute
)

func (n *Node) attempted(start Start) *attempt {
	now := n.o.Clock.Now()
	a := n.attempts[start]
	if a == nil || now.Sub(a.at) >= lasted {
		a = &attempt{}
		n.attempts[start] = a
	}
	pause := min(firstPause<<min(a.times, 10), lastPause)
	a.times, a.at, a.notBefore = a.times+1, now, now.Add(pause)
	return a
}

func (n *Node) start(a Action) error {
	n.attempted(Start{a.KeyID, a.Settings})
	all, b := n.asks(a.Bundle)
	if b == nil {
		return fmt.Errorf("there is no bundle %s any more", a.Bundle)
	}
	p := pluginOf(b, a.KeyID)
	if p == nil {
		return fmt.Errorf("bundle %s has no keyID %s", a.Bundle, a.KeyID)
	}
	sockets := n.socketsOf(b)
	if err := os.MkdirAll(sockets, 0o700); err != nil {
		return fmt.Errorf("folder of the sockets: %w", err)
	}
	if err := guarded(sockets); err != nil {
		return fmt.Errorf("folder of the sockets: %w", err)
	}
	s := Spec{Instance: newInstance(), KeyID: a.KeyID, Settings: a.Settings, Program: p.Settings().Program}
	s.Folder = filepath.Join(n.disk.folder, s.Instance)
	s.Socket = filepath.Join(sockets, "kms-"+s.KeyID+"."+s.Instance+".sock")
	if len(s.Socket) > maxSocket {
		return fmt.Errorf("%s is longer than %d characters, which a socket's path may have: choose a shorter folder", s.Socket, maxSocket)
	}
	s.Arguments = p.Arguments(bundle.Place{Socket: s.Socket, Files: s.Files()})
	s.Needs = p.Needs()
	n.o.Log(fmt.Sprintf("start keyID %s as %s of revision %d", s.KeyID, s.Instance, b.Revision()))
	if err := n.disk.prepare(s, all.files(p), all.filesHash(p)); err != nil {
		return errors.Join(err, wipe(s.Folder))
	}
	return n.o.Runner.Start(s)
}

// maxSocket is the longest path of a unix socket on Linux, in bytes.
const maxSocket = 107

// sync gives an instance the newest credentials and CA. The plugin reads them by itself.
func (n *Node) sync(one *own, name string) error {
	all, b := n.asks(name)
	if b == nil || !hasPlugin(b, one.Spec.KeyID) {
		return fmt.Errorf("no bundle %s has keyID %s any more", name, one.Spec.KeyID)
	}
	p := pluginOf(b, one.Spec.KeyID)
	n.o.Log(fmt.Sprintf("put new files in place for keyID %s, %s", one.Spec.KeyID, one.Spec.Instance))
	files := all.files(p)
	for name, content := range files {
		one.secrets.add(name, content)
	}
	return putFiles(one.Spec, files, all.filesHash(p))
}

// keep makes durable what is in effect from then on. What could not be read before is put
// aside, and not lost.
func (n *Node) keep(k kept) error {
	if n.damaged {
		if err := os.Rename(n.keptPath(), n.keptPath()+".damaged"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	former, _ := os.OpenFile(n.keptPath(), os.O_WRONLY, 0) // there may be none
	if err := k.write(n.keptPath()); err != nil {
		err = fmt.Errorf("keep the bundle in %s: %w", n.o.State, err)
		if former != nil {
			err = errors.Join(err, former.Close())
		}
		return err
	}
	n.kept = k
	if n.damaged {
		n.damaged = false
		n.trouble("bundles on disk", nil)
	}
	if former == nil {
		return nil
	}
	return zero(former) // it has credentials that may be in no bundle any more
}

// place puts the configuration file in place by one rename.
func (n *Node) place(name string) error {
	_, b := n.asks(name)
	if b == nil {
		return fmt.Errorf("there is no bundle %s any more", name)
	}
	err := n.exchange(b.EncryptionConfig())
	n.placed.Add(1) // also if it is not known whether it was
	if err != nil {
		return fmt.Errorf("put the configuration file in place: %w", err)
	}
	return nil
}

func (n *Node) exchange(content []byte) error {
	if n.known.content == nil {
		return wholefile.Write(n.o.ConfigFile, content)
	}
	return wholefile.Exchange(n.o.ConfigFile, n.known.content, content, "mount the folder of the file, and not the file alone")
}

// link gives an instance the stable name of its keyID. That it may have it is on record before.
func (n *Node) link(one *own) error {
	if err := n.free(one.Spec); err != nil {
		return err
	}
	if !one.Named {
		named := one.instance
		named.Named = true
		if err := n.disk.record(named); err != nil {
			return err
		}
		one.Named = true
	}
	return relink(filepath.Base(one.Spec.Socket), stable(one.Spec))
}

// free is an error if the stable name is somebody else's, who answers there.
func (n *Node) free(s Spec) error {
	if target, err := os.Readlink(stable(s)); err == nil && isInstanceOf(s.KeyID, target) && n.ours(target) {
		return nil
	}
	return unoccupied(stable(s), n.o.Timeout)
}

// unoccupied is an error if somebody answers at a path, or if it is no socket's.
func unoccupied(name string, timeout time.Duration) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if mode := info.Mode().Type(); mode != fs.ModeSocket && mode != fs.ModeSymlink {
		return fmt.Errorf("%s is no socket (%s): move it away", name, info.Mode())
	}
	conn, err := net.DialTimeout("unix", name, timeout)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("somebody listens at %s who was not started by this node: end that one first", name), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("who has %s is not known: %w", name, err)
}

// ours reports whether an instance on record has a socket of that name.
func (n *Node) ours(socket string) bool {
	for _, one := range n.own {
		if filepath.Base(one.Spec.Socket) == socket {
			return true
		}
	}
	return false
}

func (n *Node) stop(one *own) error {
	if one.silent && !one.counted {
		one.counted = true
		n.restarts[one.Spec.KeyID]++
	}
	if err := n.o.Runner.Stop(one.Spec, false); err != nil {
		return err
	}
	one.ending = n.o.Clock.Now()
	return nil
}

// clear removes all that is left of an instance that is gone. Its files are overwritten.
func (n *Node) clear(one *own) error {
	s := one.Spec
	one.asks.end()
	err := one.lines.passOn(one.secrets, n.o.Log)
	if one.ending.IsZero() && !one.counted {
		one.counted = true
		n.restarts[s.KeyID]++
		n.words[Start{s.KeyID, s.Settings}] = one.lines.last + n.clash(one, one.lines.last)
	}
	if n.linked(s) {
		err = errors.Join(err, os.Remove(stable(s)))
	}
	err = errors.Join(err, n.o.Runner.Clear(s), removed(s.Socket), removed(s.Socket+".lock"), n.disk.discard(s))
	if err == nil {
		delete(n.own, s.Instance)
	}
	return err
}

func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
