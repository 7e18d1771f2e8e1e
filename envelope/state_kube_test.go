package envelope

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"

	"github.com/kube-atrest/atrest/internal/stored"
)

// The cases of kube-apiserver's own tests of its state machine, and what comes
// of them here.

func TestStalenessBesideKubeAPIServers(t *testing.T) {
	for name, c := range map[string]struct {
		written, writes WriteMode
		keyID           string // when it is read
		here, there     bool   // stale
	}{
		"the same key_id, DEK":     {Counter, Counter, "1", false, false},
		"the same key_id, seed":    {Seed, Seed, "1", false, false},
		"away from seeds":          {Seed, Counter, "1", false, true},
		"towards seeds":            {Counter, Seed, "1", false, true},
		"another key_id":           {Counter, Counter, "2", true, true},
		"another key_id, seed":     {Seed, Seed, "2", true, true},
		"another key_id and modes": {Counter, Seed, "2", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.written == Counter || c.writes == Counter {
				counted(t)
			}
			payload := newRig(t, func(o *Options) { o.Mode = c.written }).write("value")
			plugin := newFaultyPlugin()
			plugin.status.KeyID = c.keyID
			kube := theirs(t, plugin, c.writes == Seed)
			_, stale, err := kube.TransformFromStorage(t.Context(), payload, testKey)
			require.NoError(t, err)
			require.Equal(t, c.there, stale)

			r := newRigOn(t, plugin, func(o *Options) { o.Mode = c.writes })
			for range 2 { // cold, then from the cache
				_, stale = r.read(payload)
				require.Equal(t, c.here, stale)
			}
		})
	}
}

// kube-apiserver reads nothing before its first healthy Status. Here that is no
// reason; but everything is stale until it is known under which key_id it should
// be, or an update that changes nothing would seem to have written it again.
func TestReadsDoNotWaitForTheFirstHealthyStatus(t *testing.T) {
	payload := newRig(t).write("value")
	plugin := newFaultyPlugin()
	plugin.set(func(f *faultyPlugin) { f.statusErr = errGone })
	kube := kmsv2.NewEnvelopeTransformer(serviceOf{plugin}, "test", func() (kmsv2.State, error) {
		return kmsv2.State{}, errors.New("no state")
	}, "apiserver")
	_, _, err := kube.TransformFromStorage(t.Context(), payload, testKey)
	require.Error(t, err)

	r := newRigOn(t, plugin)
	got, stale := r.read(payload)
	require.Equal(t, "value", got)
	require.True(t, stale)
	r.writeFails("no DEK that the plugin is known to unwrap")
}

// What works in each state of a provider: writing, reading what was written
// with it, and reading what another server wrote.
func TestWhatWorksInEachState(t *testing.T) {
	foreign := newRig(t).write("value")
	for name, c := range map[string]struct {
		reach                 func(*rig)
		writes, reads, reads2 bool
	}{
		"healthy":       {func(*rig) {}, true, true, true},
		"plugin away":   {func(r *rig) { r.plugin.die() }, true, true, false},
		"window passed": {func(r *rig) { r.plugin.die(); r.clock.Step(DefaultWriteWindow + 1) }, false, true, false},
		"and plugin back": {func(r *rig) {
			r.plugin.die()
			r.pass(DefaultWriteWindow + 1)
			r.plugin.live()
			r.pass(DefaultUnhealthyPoll)
		}, true, true, true},
		"no Status":  {func(r *rig) { r.failStatus(); r.clock.Step(DefaultWriteWindow + 1) }, false, true, true},
		"no Decrypt": {func(r *rig) { r.plugin.set(func(f *faultyPlugin) { f.decErr = errGone }) }, true, true, false},
		"no Encrypt": {func(r *rig) { r.plugin.set(func(f *faultyPlugin) { f.encErr = errGone }) }, true, true, true},
		"unhealthy by word": {func(r *rig) {
			r.plugin.set(func(f *faultyPlugin) { f.status.Healthz = "no" })
			r.pass(DefaultHealthyPoll)
		}, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range WriteModes() {
				r := newRig(t, func(o *Options) { o.Mode = mode })
				own := r.write("value")
				c.reach(r)
				_, err := r.Seal(t.Context(), testPrefix, []byte("x"), testKey)
				require.Equal(t, c.writes, err == nil, "write: %v", err)
				_, _, err = r.Open(t.Context(), own, testKey)
				require.Equal(t, c.reads, err == nil, "read: %v", err)
				_, _, err = r.Open(t.Context(), foreign, testKey)
				require.Equal(t, c.reads2, err == nil, "read of another's: %v", err)
			}
		})
	}
}

func (r *rig) failStatus() {
	r.plugin.set(func(f *faultyPlugin) { f.statusErr = errGone })
}

// oneCiphertext is a plugin that answers every Encrypt with the same
// ciphertext and keeps the wrapped DEK in an annotation.
type oneCiphertext struct{ *faultyPlugin }

func (p oneCiphertext) Encrypt(ctx context.Context, dek []byte) (Wrapped, error) {
	w, err := p.faultyPlugin.Encrypt(ctx, dek)
	w.Annotations, w.Ciphertext = map[string][]byte{"dek.example.com": w.Ciphertext}, []byte("same")
	return w, err
}

func (p oneCiphertext) Decrypt(ctx context.Context, w Wrapped) ([]byte, error) {
	w.Ciphertext = w.Annotations["dek.example.com"]
	return p.faultyPlugin.Decrypt(ctx, w)
}

func TestAConstantCiphertextDoesNotConfuseTheCache(t *testing.T) {
	plugin := oneCiphertext{newFaultyPlugin()}
	reader := lease(NewProvider(plugin, Options{}), Reads)
	var payloads [][]byte
	for i := range 3 {
		w := lease(NewProvider(plugin, Options{}), Writes)
		require.NoError(t, w.Asked(t.Context()))
		out, err := w.Seal(t.Context(), testPrefix, []byte(fmt.Sprint(i)), testKey)
		require.NoError(t, err)
		payloads = append(payloads, out[len(testPrefix):])
		t.Cleanup(w.End)
	}
	for range 2 {
		for i, p := range payloads {
			got, _, err := reader.Open(t.Context(), p, testKey)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(i), string(got))
		}
	}
	require.Equal(t, 3, reader.Health().CachedDEKs)
	reader.End()
}

// What one look at the plugin does to the DEK that is written with, and to how
// long it may be.
func TestWhatALookAtThePluginDoesToTheDEK(t *testing.T) {
	long := strings.Repeat("x", stored.MaxKeyID+1)
	refused := map[string][]byte{"no-domain": nil}
	for name, c := range map[string]struct {
		before   func(*faultyPlugin) // the first look
		expired  bool                // whether the window passes in between
		then     func(*faultyPlugin)
		fresh    bool    // another DEK than before
		prolongs bool    // or begins
		problem  Problem // after the second look
	}{
		"none before, healthy":               {before: absent, then: healthy("1"), fresh: true, prolongs: true},
		"the same key_id":                    {then: healthy("1"), prolongs: true},
		"another key_id":                     {then: healthy("2"), fresh: true, prolongs: true},
		"expired, the same key_id":           {expired: true, then: healthy("1"), prolongs: true},
		"expired, another key_id":            {expired: true, then: healthy("2"), fresh: true, prolongs: true},
		"away":                               {then: absent, problem: Unreachable},
		"another key_id, Encrypt fails":      {then: func(f *faultyPlugin) { f.status.KeyID, f.encErr = "2", errGone }, problem: Unreachable},
		"another key_id, answer refused":     {then: func(f *faultyPlugin) { f.status.KeyID, f.annotations = "2", refused }, problem: BadAnswer},
		"another key_id, Encrypt disagrees":  {then: func(f *faultyPlugin) { f.status.KeyID, f.encryptKeyID = "2", "1" }, problem: Disagreement},
		"another key_id, Encrypt's too long": {then: func(f *faultyPlugin) { f.status.KeyID, f.encryptKeyID = "2", long }, problem: BadAnswer},
		"none before, Encrypt fails":         {before: absent, then: func(f *faultyPlugin) { f.statusErr, f.encErr = nil, errGone }, problem: Unreachable},
		"none before, answer refused":        {before: absent, then: func(f *faultyPlugin) { healthy("1")(f); f.annotations = refused }, problem: BadAnswer},
		"no key_id":                          {then: healthy(""), problem: BadKeyID},
		"key_id too long":                    {then: healthy(long), problem: BadKeyID},
		"unhealthy, the same key_id":         {then: func(f *faultyPlugin) { f.status.Healthz = "sick" }, problem: Unhealthy},
		"unhealthy, another key_id":          {then: func(f *faultyPlugin) { f.status.KeyID, f.status.Healthz = "2", "sick" }, problem: Unhealthy},
		"another version":                    {then: func(f *faultyPlugin) { f.status.Version = "v2beta1" }, problem: BadVersion},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range WriteModes() {
				plugin := newFaultyPlugin()
				if c.before != nil {
					plugin.set(c.before)
				}
				r := newRigOn(t, plugin, func(o *Options) { o.Mode = mode })
				before := r.Health()
				if c.expired {
					r.failStatus()
					r.pass(DefaultWriteWindow + 1)
					r.writeFails()
				}
				plugin.set(c.then)
				r.pass(DefaultHealthyPoll)

				after := r.Health()
				require.Equal(t, c.problem, after.Problem)
				require.Equal(t, c.fresh, after.DEKCreated.After(before.DEKCreated))
				require.Equal(t, c.prolongs, after.WritesUntil.After(before.WritesUntil))
			}
		})
	}
}

func absent(f *faultyPlugin) { f.statusErr, f.encErr, f.decErr = errGone, errGone, errGone }

func healthy(keyID string) func(*faultyPlugin) {
	return func(f *faultyPlugin) {
		f.status = Status{Version: "v2", Healthz: "ok", KeyID: keyID}
		f.statusErr, f.encErr, f.decErr = nil, nil, nil
	}
}

// The seed that kube-apiserver makes is wrapped as it is; so is what is made here.
func TestWhatIsWrappedIsTheKeyOfTheMode(t *testing.T) {
	for _, mode := range WriteModes() {
		r := newRig(t, func(o *Options) { o.Mode = mode })
		object, err := stored.Parse(r.write("value"))
		require.NoError(t, err)
		require.Equal(t, mode.sourceType(), object.Source.Type)
		secret, err := base64.StdEncoding.DecodeString(string(object.Source.EncryptedDEK))
		require.NoError(t, err)
		require.Len(t, secret, dekSize)
		open, err := newOpener(object.Source.Type, secret)
		require.NoError(t, err)
		got, err := open.open(object.Data, testKey.AuthenticatedData())
		require.NoError(t, err)
		require.Equal(t, "value", string(got))
	}
}
