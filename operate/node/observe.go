package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// observe looks at everything anew.
func (n *Node) observe(ctx context.Context) Observation {
	n.readInstances(ctx)
	if len(n.kept.bundles) > 0 {
		n.trouble("sockets", n.elsewhere(n.socketsOf(n.kept.bundles[0])))
	}
	n.readCandidate()
	n.readFile()
	o := Observation{Now: n.o.Clock.Now(), Accepted: n.kept.wanted(), File: n.known.file, Plugins: n.known.plugins,
		NotBefore: map[Start]time.Time{}, Grace: n.o.Grace, Fresh: within(n.o.AskEvery)}
	if b := n.known.candidate; b != nil {
		w := append(bundles{b}, n.kept.bundles...).wanted(b, nil, n.known.expected)
		o.Candidate = &w
		if len(o.Accepted) == 0 {
			o.Removed = removedBy(b, n.known.content)
		}
	}
	for start, a := range n.attempts {
		o.NotBefore[start] = a.notBefore
	}
	for i, w := range n.apiservers {
		o.Apiservers = append(o.Apiservers, w.now().of(n.o.Apiservers[i].Name(), n.placed.Load()))
	}
	n.tryPlugins(ctx, &o)
	return o
}

// readCandidate reads the folder. What cannot be read there changes nothing.
func (n *Node) readCandidate() {
	n.known.candidate, n.known.expected = nil, nil
	if n.o.Bundles == "" {
		return
	}
	b, err := bundle.ReadFolder(n.o.Bundles)
	if err == nil {
		err = n.fits(b)
	}
	var expected map[string]string
	if err == nil && n.o.Expected != nil {
		expected, err = n.o.Expected(b)
	}
	n.trouble("folder of bundles", err)
	if err == nil {
		n.known.candidate, n.known.expected = b, expected
	}
}

// fits refuses a bundle whose sockets would be elsewhere than where plugins are started, or than
// where they are: an apiserver asks at the one place before it takes the file into effect, and at the
// other afterwards, and a plugin is at one.
func (n *Node) fits(b *bundle.Bundle) error {
	folder := n.socketsOf(b)
	if folder != "" && !filepath.IsAbs(folder) {
		return fmt.Errorf("the sockets of the bundle are in %q: name their folder on this machine", folder)
	}
	for _, former := range n.kept.bundles {
		if is := n.socketsOf(former); is != "" && folder != "" && is != folder {
			return fmt.Errorf("the sockets of the bundle are in %s, and plugins that may be needed have theirs in %s: leave them there", folder, is)
		}
	}
	return n.elsewhere(folder)
}

// elsewhere is an error if a plugin has its socket in another folder: it was started before the folder was
// changed.
func (n *Node) elsewhere(folder string) error {
	for _, instance := range slices.Sorted(maps.Keys(n.own)) {
		s := n.own[instance].Spec
		if is := filepath.Dir(s.Socket); folder != "" && is != filepath.Clean(folder) {
			return fmt.Errorf("the plugin of keyID %s, %s, has its socket in %s, and not in %s: name the former folder or, if it is the wrong one, end the plugin by --drain", s.KeyID, instance, is, folder)
		}
	}
	return nil
}

func (n *Node) socketsOf(b *bundle.Bundle) string {
	if n.o.Sockets != "" {
		return n.o.Sockets
	}
	return b.SocketFolder()
}

// readFile reads the configuration file. When it is another one than it was, what an apiserver
// told before does not count.
func (n *Node) readFile() {
	content, err := readConfig(n.o.ConfigFile)
	is := File{Known: err == nil}
	if err == nil && content != nil {
		is.Hash, is.KeyIDs = hashed.Name(content), keyIDsIn(content)
	}
	n.trouble("configuration file", err)
	if is.Known != n.known.file.Known || is.Hash != n.known.file.Hash {
		n.placed.Add(1)
	}
	n.known.file, n.known.content = is, content
}

// socket is the name of one of a plugin.
var socket = regexp.MustCompile(`kms-([1-9][0-9]*)\.sock`)

// keyIDsIn are those whose sockets a configuration file names. One that nobody can use is looked
// through all the same: what it was made of may be needed.
func keyIDsIn(content []byte) []string {
	var all []string
	for _, found := range socket.FindAllSubmatch(content, -1) {
		all = append(all, string(found[1]))
	}
	return all
}

// removedBy is what a configuration file reads with and a bundle does not. Of one that is refused here that is
// not known: an older apiserver may have it in effect, as those before v1.30 have one with an unknown field.
func removedBy(b *bundle.Bundle, content []byte) (all []string) {
	if len(bytes.TrimSpace(content)) == 0 {
		return nil
	}
	is, err := config.Parse(content, config.Options{KMSv1: true})
	if err != nil {
		return []string{fmt.Sprintf("what is not known until it is corrected (%v)", err)}
	}
	for _, change := range config.Diff(is, b.Configuration()) {
		if len(change.Removed) > 0 {
			all = append(all, strings.Join(change.Removed, ", ")+" for "+change.Resource)
		}
	}
	return all
}

// readConfig is the content of a file, nil if there is none.
func readConfig(path string) ([]byte, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, config.MaxSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("configuration file: %w", err)
	case len(content) > config.MaxSize:
		return nil, fmt.Errorf("configuration file: %s has more than %d bytes", path, config.MaxSize)
	}
	return append([]byte{}, content...), nil
}

// readInstances looks at every instance that has a folder.
func (n *Node) readInstances(ctx context.Context) {
	n.known.plugins, n.known.blind = nil, true
	found, stray, err := n.disk.all()
	for _, folder := range stray { // in which nothing was started
		err = errors.Join(err, wipe(folder))
	}
	n.trouble("instances", err)
	if err != nil { // what runs is not known, and is not to be started twice
		return
	}
	n.known.blind = false
	for _, in := range found {
		one := n.own[in.Spec.Instance]
		if one == nil {
			one = n.adopt(ctx, in)
		}
		one.instance = in
		n.known.plugins = append(n.known.plugins, n.look(one))
	}
}

// adopt begins to ask an instance, whoever started it.
func (n *Node) adopt(ctx context.Context, in instance) *own {
	n.awaitEnd(ctx, in.Spec)
	a := &asked{spec: in.Spec, runner: n.o.Runner, timeout: n.o.Timeout}
	one := &own{instance: in, lines: linesOf(in.Spec), changed: map[string]time.Time{}, secrets: secretsOf(in.Spec)}
	ask := func(ctx context.Context) account {
		if a.last.Well && n.o.Clock.Since(a.last.At) < n.o.AskEvery {
			return a.last
		}
		return a.ask(ctx, n.o.Clock.Now)
	}
	one.asks = watching(ctx, n.o.Clock, min(n.o.Every, n.o.AskEvery), ask, n.again)
	n.own[in.Spec.Instance] = one
	return one
}

// awaitEnd has a round follow at once when an instance ends, where its runner can tell: apiservers wait a
// second or so for a plugin that has gone.
func (n *Node) awaitEnd(ctx context.Context, s Spec) {
	if of, tells := n.o.Runner.(interface {
		waitEnd(context.Context, Spec) error
	}); tells {
		n.ends.Go(func() {
			if of.waitEnd(ctx, s) == nil {
				n.again()
			}
		})
	}
}

// look is an instance as it is now. One of which it is not known whether it runs is not gone.
func (n *Node) look(one *own) Plugin {
	s, health := one.Spec, one.asks.now()
	p := Plugin{Instance: s.Instance, KeyID: s.KeyID, Settings: s.Settings, Files: filesNow(s), Named: one.Named, Linked: n.linked(s),
		Well: health.Well, KeyIDHash: health.KeyIDHash}
	runs, err := n.o.Runner.Runs(s)
	one.silent = err == nil && runs && one.Named && n.o.Silence > 0 && health.silent() >= n.o.Silence
	n.trouble(instanceOf+s.Instance, err)
	var silence error
	if one.silent && one.ending.IsZero() {
		silence = fmt.Errorf("the plugin of keyID %s runs, and has answered nothing since %s: another one takes its place when that answers", s.KeyID, health.SilentSince.UTC().Format(time.RFC3339))
	}
	n.trouble(silenceOf+s.Instance, silence)
	if health.Well {
		delete(n.words, Start{s.KeyID, s.Settings})
	}
	switch {
	case err == nil && !runs:
		p.State = Ended
	case !one.ending.IsZero():
		p.State = Ending
		n.insist(one)
	case one.silent:
		p.State = Silent
	case health.Serving:
		p.State = Serving
	}
	return p
}

// insist ends an instance that does not end.
func (n *Node) insist(one *own) {
	if !one.hard && n.o.Clock.Since(one.ending) >= n.o.Patience {
		err := n.o.Runner.Stop(one.Spec, true)
		one.hard = err == nil
		n.trouble("stop "+one.Spec.KeyID, err)
	}
}

// stable is the name of a keyID's socket, in the folder of an instance's socket.
func stable(s Spec) string { return filepath.Join(filepath.Dir(s.Socket), "kms-"+s.KeyID+".sock") }

func (n *Node) linked(s Spec) bool {
	target, err := os.Readlink(stable(s))
	return err == nil && target == filepath.Base(s.Socket)
}

// isInstanceOf reports whether a name is one of a socket of an instance of a keyID.
func isInstanceOf(keyID, name string) bool {
	rest, ok := strings.CutPrefix(name, "kms-"+keyID+".")
	instance, ends := strings.CutSuffix(rest, ".sock")
	return ok && ends && instance != "" && !strings.ContainsAny(instance, "./")
}
