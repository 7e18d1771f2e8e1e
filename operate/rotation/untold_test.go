package rotation_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// With --watch the end is told again and again, from one count. A key_id that another
// provider named and wrote under since that count is told to be free as soon as that
// provider has another.
func TestAKeyIDThatWasWrittenUnderSinceTheCountIsNotFree(t *testing.T) {
	d := newOnePlugin(t, "")
	d.all(keyA)
	d.next(0)
	d.all(keyB)
	d.next(0)
	beside := func(key string) { // a provider of another resource, on a plugin of its own with the same key
		for name, i := range d.seen.Instances {
			i.Providers["beside"] = rotation.Provider{Healthy: true, KeyID: key, WroteKeyID: key, WroteAt: d.now}
			d.seen.Instances[name] = i
		}
	}
	beside(keyA)
	require.NotEmpty(t, d.next(hold).Actions)
	d.report(rotation.Succeeded, "secrets", "configmaps")
	require.IsType(t, rotation.RunAudit{}, d.next(time.Second).Actions[0])
	d.audit(stored("secrets", keyB, 3)) // nothing is stored by the other provider yet
	done, ok := d.next(time.Second).Done()
	require.True(t, ok)
	require.NotContains(t, done.KeyIDs, keyA)

	// A day later: it wrote objects under keyA meanwhile, and goes on to keyB now.
	d.next(24 * time.Hour)
	beside(keyB)
	done, ok = d.next(time.Second).Done()
	require.False(t, ok && len(done.KeyIDs) > 0, "said by a count of yesterday: %s", done)
}

// The clock was a day ahead when a rewriting failed, was set right, and the command was
// started again, as it is by whoever set the clock right.
func TestAFailureOfTomorrowIsNotWaitedFor(t *testing.T) {
	d := newOnePlugin(t, "")
	d.all(keyA)
	d.next(0)
	require.NotEmpty(t, d.next(hold).Actions)
	d.report(rotation.Failed, "secrets", "configmaps")
	require.Equal(t, []string{"retrying"}, reasons(d.next(time.Second)))

	d.seen.Migrations = nil
	d.now = d.now.Add(-24 * time.Hour)
	data, err := d.state.Encode()
	require.NoError(t, err)
	stored, err := rotation.Decode(data)
	require.NoError(t, err)
	d.state = rotation.Resume(stored, d.now)
	d.all(keyA)
	d.next(0)
	decision := d.next(time.Hour)
	require.NotEmpty(t, decision.Actions, "waits for %s", decision.Waiting)
}

// Somebody took the canaries away: a count has none of what they showed.
func TestWhatACountHasNotIsShownAgain(t *testing.T) {
	d := newMoveTest(t)
	d.removed()
	d.audit(rotation.Count{Resource: "others", Objects: 3})
	_, decision := rotation.Next(d.state, d.seen, d.now.Add(1)) // nothing was shown since
	require.Contains(t, reasons(decision), "miscounted")
	require.Contains(t, decision.Actions, rotation.Canary{Instance: "b", Providers: []string{"new"}})
}

// Somebody put the file with the old provider back, and the apiserver waits for that
// plugin: it writes with it as soon as that answers.
func TestNothingIsAtItsEndWhileAFileIsAboutToBeTakenIntoUse(t *testing.T) {
	pending := func(d *driver, why, file string) {
		i := d.seen.Instances["b"]
		i.Pending, i.FileHash = why, cmp.Or(file, i.FileHash)
		d.seen.Instances["b"] = i
	}
	t.Run("a move", func(t *testing.T) {
		d := newMoveTest(t)
		d.swapped()
		d.report(rotation.Succeeded, "secrets")
		d.next(1)
		d.audit(newSecrets(3))
		pending(d, "it waits for the plugins of sha256:2", "sha256:2")
		decision := d.next(1)
		require.Empty(t, decision.Actions, "the old provider is not to go")
		require.Equal(t, []string{"foreign_config"}, reasons(decision))
		require.Contains(t, decision.Waiting[0].String(), "its file as it is now is not in effect yet: it waits for the plugins of sha256:2")
		pending(d, "", "b2")
		require.Equal(t, []string{"holding"}, reasons(d.next(1)), "what it wrote meanwhile no count has")
		require.IsType(t, rotation.RunAudit{}, d.next(hold).Actions[0])
		d.audit(newSecrets(3))
		require.IsType(t, rotation.WriteConfig{}, d.next(1).Actions[0])
		pending(d, "it waits for the plugins of b3", "b3")
		require.IsType(t, rotation.WriteConfig{}, d.next(1).Actions[0], "which is waited for")
		d.has("a", 3)
		d.has("b", 3)
		d.next(1)
		require.IsType(t, rotation.RunAudit{}, d.next(hold).Actions[0])
		d.audit(newSecrets(3))
		pending(d, "it waits", "")
		_, done := d.next(1).Done()
		require.False(t, done)
	})
	t.Run("one plugin", func(t *testing.T) {
		d := newOnePlugin(t, "")
		d.all(keyA)
		d.next(0)
		d.all(keyB)
		d.next(0)
		d.next(hold)
		d.report(rotation.Succeeded, "secrets", "configmaps")
		require.IsType(t, rotation.RunAudit{}, d.next(time.Second).Actions[0])
		d.audit(stored("secrets", keyB, 3))
		i := d.seen.Instances["a"]
		i.Pending = "it waits"
		d.seen.Instances["a"] = i
		decision := d.next(time.Second)
		require.Equal(t, []string{"foreign_config"}, reasons(decision))
		require.Empty(t, decision.Actions)
	})
}
