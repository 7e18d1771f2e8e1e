package faults

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/reload"
)

// Writers and readers go on while the file is rewritten, plugins die and
// return, key_ids change and the clock jumps. What has to hold is held after
// every step, and at the end of every run.
//
// A run that fails is printed with its seed, for -rapid.seed. How operations
// and steps meet is not in the seed.
func TestSimulation(t *testing.T) {
	setDefault(t, "rapid.checks", numberOf(6, 100))
	setDefault(t, "rapid.steps", numberOf(40, 60))
	w := &world{}
	for range plugins {
		w.machines = append(w.machines, &machine{Plugin: faultplugin.New(t)})
	}
	rapid.Check(t, w.run)
	o := &w.operations
	t.Logf("%d writes and %d refused, %d reads and %d refused", o.writes.Load(), o.refused.Load(), o.reads.Load(), o.unread.Load())
}

// setDefault sets a flag that was not given.
func setDefault(t *testing.T, name string, n int) {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !given {
		require.NoError(t, flag.Set(name, fmt.Sprint(n)))
	}
}

// run is one simulation from start to end.
func (w *world) run(rt *rapid.T) {
	before := footprintNow(rt)
	before.heap = math.MaxInt32 // metrics and pools keep what the first runs bring
	for _, m := range w.machines {
		m.revive("1")
	}
	first := w.fullContent(rt)
	w.server, w.objects, w.wrong, w.starts = prepare(rt, first.text), nil, nil, 0
	w.may, w.hashes, w.errors = []content{first}, map[string]bool{first.hash: true}, map[string]bool{}
	w.tokens = make(chan struct{}, 16)
	w.start(nil).follow()
	var workers sync.WaitGroup
	for range 4 {
		seed := rapid.Uint64().Draw(rt, "seed of a worker")
		workers.Go(func() { w.work(seed) })
	}

	defer func() {
		workers.Wait()
		w.end()
		for _, m := range w.machines {
			m.kill()
		}
	}()
	func() {
		defer close(w.tokens)
		rt.Repeat(w.steps())
	}()
	workers.Wait()
	w.calm(rt)
	w.requireUniqueNonces()
	w.end()
	for _, m := range w.machines {
		m.kill()
	}
	w.requireSilence()
	w.objects, w.errors, w.server.log = nil, nil, nil
	requireNoMoreThan(rt, before, 0)
}

// steps are what may happen. Twice means more often.
func (w *world) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":              w.holds,
		"rewrite":       w.rewriteAny,
		"rewrite again": w.rewriteAny,
		"rewrite bad":   func(rt *rapid.T) { w.put(w.badContent(rt)) },
		"half-written":  w.halfWritten,
		"delete":        w.deleteFile,
		"kill":          w.killOne,
		"spoil":         w.spoilOne,
		"spoil another": w.spoilOne,
		"rotate":        w.rotate,
		"jump":          w.jump,
		"jump far":      w.jumpFar,
		"restart":       w.restart,
		"calm":          w.calmOrNot,
	}
}

// busy lets operations run, most of them after what was done before.
func (w *world) busy() {
	for range 3 * cap(w.tokens) {
		w.tokens <- struct{}{}
	}
}

// holds is what is true after every step.
func (w *world) holds(rt *rapid.T) {
	w.busy()
	w.settled()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(rt, w.wrong)
}

func (w *world) rewrite(c content) {
	w.publish(c)
	w.put(c.text)
}

// rewriteAny rewrites the file, and mostly waits to see what comes of it.
func (w *world) rewriteAny(rt *rapid.T) {
	c := w.anyContent(rt)
	w.rewrite(c)
	if rapid.IntRange(0, 3).Draw(rt, "wait") > 0 {
		w.passUntil(func() bool { return w.settled() || w.Status().Reload.FailedHash == c.hash }, "the file is in use or refused")
	}
}

// halfWritten writes a file in two parts, with some time in between.
func (w *world) halfWritten(rt *rapid.T) {
	if runtime.GOOS != "linux" {
		rt.Skip("no other system tells whether a file is open for writing")
	}
	c := w.anyContent(rt)
	w.publish(c)
	lines := strings.SplitAfter(c.text, "\n") // most beginnings are a configuration of their own
	part := strings.Join(lines[:rapid.IntRange(1, len(lines)-2).Draw(rt, "lines of the first part")], "")
	f, err := os.Create(w.path)
	require.NoError(rt, err)
	defer f.Close()
	_, err = f.WriteString(part)
	require.NoError(rt, err)
	for range rapid.IntRange(0, 5).Draw(rt, "seconds") {
		w.until(func() bool { return w.clock.waiting(func(t *timer) bool { return t.length <= reloadPoll }) > 0 }, "the file is to be looked at again")
		w.clock.Step(time.Second)
		w.busy()
		w.settled()
	}
	_, err = f.WriteString(c.text[len(part):])
	require.NoError(rt, err)
}

func (w *world) deleteFile(rt *rapid.T) {
	if err := os.Remove(w.path); err != nil {
		rt.Skip("it is gone already")
	}
}

func (w *world) anyMachine(rt *rapid.T) *machine {
	return w.machines[rapid.IntRange(0, plugins-1).Draw(rt, "plugin")]
}

func (w *world) killOne(rt *rapid.T) {
	m := w.anyMachine(rt)
	m.spoil(w.clock.Now(), func(*faultplugin.Plugin) { m.kill() })
}

// spoilt are faults that make a plugin unhealthy; fresh is a key_id that was
// not there before.
var spoilt = map[string]func(b *faultplugin.Behaviour, fresh string){
	"hang":         func(b *faultplugin.Behaviour, _ string) { b.Hang = true },
	"refuse":       func(b *faultplugin.Behaviour, _ string) { refused(b) },
	"healthz":      func(b *faultplugin.Behaviour, _ string) { b.Healthz = "spoilt" },
	"version":      func(b *faultplugin.Behaviour, _ string) { b.Version = "v3" },
	"empty":        func(b *faultplugin.Behaviour, _ string) { b.KeyID = "" },
	"oversized":    func(b *faultplugin.Behaviour, _ string) { b.KeyID = strings.Repeat("k", 2000) },
	"disagreement": func(b *faultplugin.Behaviour, fresh string) { b.KeyID, b.EncryptKeyID = fresh, fresh+"'" },
	"unusable": func(b *faultplugin.Behaviour, fresh string) {
		b.KeyID, b.Annotations = fresh, map[string][]byte{"no domain": nil}
	},
	"wrong key": func(b *faultplugin.Behaviour, _ string) { b.Healthz, b.Garbage = "spoilt", make([]byte, 32) },
	"no key":    func(b *faultplugin.Behaviour, _ string) { b.Healthz, b.Garbage = "spoilt", []byte("no key") },
}

func refused(b *faultplugin.Behaviour) {
	err := status.Error(codes.PermissionDenied, "refused by the simulation")
	b.StatusErr, b.EncryptErr, b.DecryptErr = err, err, err
}

func (w *world) spoilOne(rt *rapid.T) {
	names := make([]string, 0, len(spoilt))
	for name := range spoilt {
		names = append(names, name)
	}
	fault := spoilt[rapid.SampledFrom(sorted(names)).Draw(rt, "fault")]
	fresh := w.freshKeyID()
	w.anyMachine(rt).spoil(w.clock.Now(), func(p *faultplugin.Plugin) {
		p.Set(func(b *faultplugin.Behaviour) { fault(b, fresh) })
	})
}

func (w *world) freshKeyID() string {
	w.files++
	return fmt.Sprintf("key %d", w.files)
}

// rotate makes a plugin healthy under a key_id that is new, or was there at the
// start.
func (w *world) rotate(rt *rapid.T) {
	keyID := "1"
	if rapid.Bool().Draw(rt, "fresh key_id") {
		keyID = w.freshKeyID()
	}
	w.anyMachine(rt).revive(keyID)
}

func (w *world) jump(rt *rapid.T) {
	w.clock.Step(rapid.SampledFrom([]time.Duration{time.Second, unhealthyPoll, healthyPoll, writeWindow}).Draw(rt, "time"))
	w.polled()
}

// jumpFar is beyond every write window, which a poll may begin anew.
func (w *world) jumpFar(rt *rapid.T) {
	w.clock.Step(rapid.SampledFrom([]time.Duration{writeWindow + 1, time.Hour, 25 * time.Hour}).Draw(rt, "time"))
	w.polled()
}

// polled waits until every loop that follows a plugin has asked it, if it was
// due to.
func (w *world) polled() { w.until(w.allPaused, "all plugins were polled") }

// restart ends the server and starts another on a file that can be used.
func (w *world) restart(rt *rapid.T) {
	c := w.anyContent(rt)
	w.publish(c)
	w.restarting.Lock()
	defer w.restarting.Unlock()
	w.end()
	w.put(c.text)
	w.mu.Lock()
	w.starts++
	w.mu.Unlock()
	w.start(nil).follow()
	require.True(rt, w.settled())
}

// calmOrNot takes a second, and little can go wrong in it.
func (w *world) calmOrNot(rt *rapid.T) {
	if rapid.IntRange(0, 2).Draw(rt, "calm") == 0 {
		w.calm(rt)
	}
}

// calm heals everything. Then every value ever written reads back, and every
// resource is written with what the file says.
func (w *world) calm(rt *rapid.T) {
	for _, m := range w.machines {
		m.revive("1")
	}
	c := w.fullContent(rt)
	w.rewrite(c)
	w.passUntil(func() bool { return w.settled() && w.healthy() }, "the file is in use and all is healthy")
	w.mu.Lock()
	objects := w.objects
	w.mu.Unlock()
	for _, o := range objects {
		w.passUntilReadBack(rt, o)
	}
	for i, r := range resources {
		value, err := w.write(r)
		require.NoError(rt, err)
		require.Equal(rt, c.means[i][0], meansOf(value))
	}
}

// passUntilReadBack lets time pass until a value reads back. The connection to a
// reader may take a second to come back, and that a Decrypt hung is remembered for
// as long as it did, which is some time of the clock.
func (w *world) passUntilReadBack(rt *rapid.T, o object) {
	err := w.readBack(o)
	for began := time.Now(); err != nil; err = w.readBack(o) {
		require.Less(rt, time.Since(began), patience, "%s: %v", o.key, err)
		w.clock.Step(reload.DefaultQuiet)
		time.Sleep(tick)
	}
}

// requireUniqueNonces holds all values together: under one key no nonce, and
// under one seed no info, comes twice.
func (w *world) requireUniqueNonces() {
	source, size := stored.SourceDEK, 12
	if envelope.WriteModes()[0] == envelope.Seed {
		source, size = stored.SourceSeed, 32
	}
	seen := map[string]string{}
	for _, o := range w.objects {
		if o.means.plugin < 0 {
			continue
		}
		_, name, _ := stored.Identify(o.value)
		parsed, err := stored.Parse(o.value[len(stored.KMSv2.PrefixFor(name)):])
		require.NoError(w.t, err)
		require.Equal(w.t, source, parsed.Source.Type)
		nonce := string(parsed.Source.Tail()) + string(parsed.Data[:size])
		require.Empty(w.t, seen[nonce], "the nonce of %s is that of another", o.key)
		seen[nonce] = o.key
	}
}

// requireSilence holds what was told to what may not be told: no key and no
// plaintext, in no form.
func (w *world) requireSilence() {
	w.t.Helper()
	state, err := json.Marshal(w.Status())
	require.NoError(w.t, err)
	told := w.log.String() + string(state)
	for text := range w.errors {
		told += text + "\n"
	}
	secret := [][]byte{[]byte(marker)}
	for _, k := range keys {
		secret = append(secret, []byte(k.secret))
	}
	for _, m := range w.machines {
		secret = append(secret, m.Secrets()...)
	}
	for _, s := range secret {
		for _, form := range []string{string(s), base64.StdEncoding.EncodeToString(s), base64.RawURLEncoding.EncodeToString(s), hex.EncodeToString(s)} {
			if at := strings.Index(told, form); at >= 0 {
				w.t.Fatalf("a secret was told: %q", told[max(0, at-200):min(len(told), at+200)])
			}
		}
	}
}
