package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/wholefile"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/lost"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// removeFlags are those of lost --remove.
type removeFlags struct {
	remove   bool
	keep     string
	confirm  []string
	separate bool
	cluster  clusterFlags
	fleet    fleetFlags

	flags *pflag.FlagSet
}

// noNamespace stands for the objects that are in none, as in the tables.
const noNamespace = "-"

func (f *removeFlags) add(flags *pflag.FlagSet) {
	f.flags = flags
	flags.BoolVar(&f.remove, "remove", false, "have the apiservers delete what is lost, after a confirmation for each namespace")
	flags.StringVar(&f.keep, "keep", "", "new file for what is deleted, as etcd had it (required with --remove)")
	flags.StringSliceVar(&f.confirm, "confirm", nil, "namespaces in which --remove deletes without asking, by commas; - for what is in none. In no other is anything deleted")
	flags.BoolVar(&f.separate, "separate-configs", false, "each apiserver has a configuration of its own, as for a socket of its own: --remove does not compare them with --config")
	f.cluster.add(flags)
	f.fleet.add(flags)
}

// ofRemove are the flags that say nothing without --remove.
var ofRemove = []string{"keep", "confirm", "canaries", "separate-configs", "kubeconfig", "context", "tls-server-name", "apiservers", "without-apiservers", "separate-apiservers", "metrics-timeout"}

func (l *lostCommand) checkRemove() error {
	f := &l.remove
	if !f.remove {
		for _, name := range ofRemove {
			if f.flags.Changed(name) {
				return usagef("flag --%s needs --remove: without it no apiserver is asked", name)
			}
		}
		return nil
	}
	switch {
	case l.source.snapshot != "":
		return usagef("flags --remove and --snapshot: a snapshot is no cluster: name etcd with --endpoints")
	case f.keep == "":
		return usagef("flag --keep is missing: name a new file for what is deleted, so that it comes back if its key is found")
	case exists(f.keep):
		return usagef("flag --keep: %s is there already: name a file that is not", f.keep)
	case slices.Contains(f.confirm, ""):
		return usagef("flag --confirm has an empty name: name the namespaces by commas, and %s for what is in none", noNamespace)
	case len(f.confirm) == 0 && l.output != "table":
		return usagef("flag --output is %q, and nothing can be asked then: name the namespaces with --confirm", string(l.output))
	case len(f.confirm) == 0 && !readsTerminal(l.in):
		return usagef("standard input is no terminal, so that nothing can be asked: name the namespaces with --confirm")
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// readsTerminal reports whether somebody may answer.
func readsTerminal(r io.Reader) bool {
	if i, ok := r.(interruptible); ok {
		r = i.in
	}
	file, ok := r.(*os.File)
	return ok && isTerminal(file)
}

// removed is what came of lost --remove.
type removed struct {
	Removed []removedObject `json:"removed"`
	Saved   []removedObject `json:"saved"`
	Left    []leftObject    `json:"left"`
	Kept    string          `json:"kept,omitempty"`
}

type removedObject struct {
	Key string `json:"key"`
	By  string `json:"by"`
}

type leftObject struct {
	Key string `json:"key"`
	Why string `json:"why"`
}

// removal is one lost --remove.
type removal struct {
	*lostCommand
	remover *lost.Remover
	file    *os.File
	answers *bufio.Reader
	done    removed
}

// begin looks whether anything may be deleted.
func (l *lostCommand) begin(ctx context.Context, c *config.Configuration, apiservers *fleet.Fleet, from source, look *lost.Look, a lost.Answer) (*removal, error) {
	to, err := l.remove.fleet.through(&l.remove.cluster)
	if err != nil {
		return nil, err
	}
	cluster, err := migrate.NewCluster(to.Config, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	l.remove.fleet.warnOfNobody(ctx, l.streams, apiservers, cluster)
	r := &removal{lostCommand: l, answers: bufio.NewReader(l.in), done: removed{Removed: []removedObject{}, Saved: []removedObject{}, Left: []leftObject{}}}
	apis, err := l.remove.fleet.each()
	if err != nil {
		return nil, err
	}
	r.remover = &lost.Remover{Apiservers: apiservers, Version: cluster.Version, Resources: cluster.Own, API: cluster, APIs: apis, Dependents: cluster.Dependents, Etcd: from, Look: look, Config: c,
		Without: l.remove.fleet.without, SeparateConfigs: l.remove.separate, Keep: r.keep}
	if err := r.remover.May(ctx, a); err != nil {
		return nil, fmt.Errorf("nothing was deleted: %w", err)
	}
	return r, nil
}

// all goes through the namespaces. An error of it ends them all.
func (r *removal) all(ctx context.Context, objects []lost.Lost) error {
	by := map[string][]lost.Lost{}
	for _, o := range objects {
		by[orDash(o.Namespace)] = append(by[orDash(o.Namespace)], o)
	}
	for _, name := range r.remove.confirm {
		if by[name] == nil {
			r.warn("flag --confirm: nothing is lost in %s", printable(name))
		}
	}
	unread, mayRead := r.leaveReadable(ctx, by)
	if len(by) > 0 && ctx.Err() == nil {
		if err := r.remover.Present(ctx, unread); err != nil {
			return fmt.Errorf("what is owned by something lost is not known: %w", err)
		}
	}
	if ctx.Err() != nil {
		return errors.New("interrupted while apiservers were asked what they read")
	}
	for _, namespace := range slices.Sorted(maps.Keys(by)) {
		err := r.namespace(ctx, namespace, by[namespace])
		switch {
		case errors.Is(err, fleet.ErrKeepsUnreadable) && mayRead:
			return fmt.Errorf("%w, and none is to be started anew for that before what is left above, as an apiserver reads it or may, is rewritten", err)
		case errors.Is(err, fleet.ErrKeepsUnreadable):
			return fmt.Errorf("%w: start one with --feature-gates=AllowUnsafeMalformedObjectDeletion=true, which there is from Kubernetes 1.32 on: each was asked, and none reads anything of what is lost", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// leaveReadable asks for all objects, before anything is deleted and an apiserver is
// advised to be started anew, and takes out what is left. What is unread no apiserver reads.
func (r *removal) leaveReadable(ctx context.Context, by map[string][]lost.Lost) (unread []lost.Object, mayRead bool) {
	for _, namespace := range slices.Sorted(maps.Keys(by)) {
		by[namespace] = slices.DeleteFunc(by[namespace], func(o lost.Lost) bool {
			err := r.remover.Unreadable(ctx, o.Object)
			switch {
			case err == nil, errors.Is(err, lost.ErrKept):
				unread = append(unread, o.Object)
			case !isSaved(err):
				mayRead = true
			}
			if err == nil || ctx.Err() != nil && !isSaved(err) {
				return false
			}
			r.left(o, err)
			return true
		})
		if len(by[namespace]) == 0 {
			delete(by, namespace)
		}
	}
	return unread, mayRead
}

func (r *removal) namespace(ctx context.Context, namespace string, objects []lost.Lost) error {
	if !r.confirmed(namespace, objects) {
		for _, o := range objects {
			r.done.Left = append(r.done.Left, leftObject{o.Key, "not confirmed"})
		}
		r.tell("left %s in %s: not confirmed", counted(len(objects), "object"), inNamespace(namespace))
		return ctx.Err()
	}
	for _, o := range objects {
		by, err := r.remover.Remove(ctx, o.Object)
		switch {
		case ctx.Err() != nil:
			return errors.New("interrupted: whether the last one was deleted, the next atrest lost tells")
		case errors.Is(err, lost.ErrStop), errors.Is(err, fleet.ErrKeepsUnreadable):
			return err
		case err != nil:
			r.left(o, err)
		default:
			r.done.Removed = append(r.done.Removed, removedObject{o.Key, by})
			r.tell("deleted %s, through %s", o.Title(), by)
		}
	}
	return nil
}

func inNamespace(name string) string {
	if name == noNamespace {
		return "no namespace"
	}
	return "namespace " + name
}

// confirmed asks for the name of a namespace, unless a flag has it.
func (r *removal) confirmed(namespace string, objects []lost.Lost) bool {
	if len(r.remove.confirm) > 0 {
		return slices.Contains(r.remove.confirm, namespace)
	}
	restore := 0
	for _, o := range objects {
		if o.Class == lost.Restore {
			restore++
		}
	}
	fmt.Fprintf(r.err, "Delete %s in %s for good, of which somebody has to restore %d?\nType %s to do so, and anything else to leave them: ",
		counted(len(objects), "object"), printable(inNamespace(namespace)), restore, printable(namespace))
	answer, _ := r.answers.ReadString('\n')
	return strings.TrimSpace(answer) == namespace
}

// left tells of an object that is not deleted: one that was saved is not lost any more.
func (r *removal) left(o lost.Lost, why error) {
	var reads *fleet.ReadError
	if errors.As(why, &reads) && reads.Saved {
		r.done.Saved = append(r.done.Saved, removedObject{o.Key, reads.Apiserver})
		r.tell("saved %s: apiserver %s had it in memory, and stored it again", o.Title(), reads.Apiserver)
		return
	}
	r.done.Left = append(r.done.Left, leftObject{o.Key, why.Error()})
	r.tell("left %s: %s", o.Title(), why)
}

func isSaved(err error) bool {
	var reads *fleet.ReadError
	return errors.As(err, &reads) && reads.Saved
}

// tell tells a person what came of an object.
func (r *removal) tell(format string, args ...any) {
	if r.output == "table" {
		fmt.Fprintln(r.out, printable(fmt.Sprintf(format, args...)))
	}
}

// keep puts a record into the file, which is made for the first one. The next is not
// begun before this one is on the disk.
func (r *removal) keep(is lost.Record) error {
	if r.file == nil {
		file, err := os.OpenFile(r.remove.keep, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("flag --keep: %w: name a file that is not there yet", err)
		}
		r.file, r.done.Kept = file, r.remove.keep
		if err := wholefile.Settle(filepath.Dir(r.remove.keep)); err != nil {
			return err
		}
	}
	line, err := json.Marshal(is)
	if err != nil {
		return err
	}
	if _, err := r.file.Write(append(line, '\n')); err != nil {
		return err
	}
	return r.file.Sync()
}

// conclude tells what was deleted, and of what was lost what is left.
func (r *removal) conclude(failed error, lostBefore int) error {
	left := lostBefore - len(r.done.Removed) - len(r.done.Saved)
	if r.file != nil {
		if err := r.file.Close(); err != nil && failed == nil {
			failed = err
		}
		r.tell("Deleted: %s, kept in %s as etcd had them. Left: %d.", counted(len(r.done.Removed), "object"), r.done.Kept, left)
	}
	switch {
	case failed != nil:
		return fmt.Errorf("%s deleted, and then: %w", counted(len(r.done.Removed), "object"), failed)
	case left > 0:
		saved := ""
		if n := len(r.done.Saved); n > 0 {
			saved = fmt.Sprintf(", %d saved", n)
		}
		return badf("lost: %s, of which %d deleted%s and %d left", counted(lostBefore, "object"), len(r.done.Removed), saved, left)
	}
	return nil
}
