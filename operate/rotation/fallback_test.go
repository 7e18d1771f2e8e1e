package rotation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// proving brings the driver to where the count of what is stored is waited for.
func (d *driver) proving(key string) {
	d.all(key)
	d.next(0)
	require.NotEmpty(d.t, d.next(hold).Actions)
	d.report(rotation.Succeeded, "secrets", "configmaps")
	require.IsType(d.t, rotation.RunAudit{}, d.next(time.Second).Actions[0])
}

// An apiserver that went back to the former key wrote under it again, behind the
// back of a count that began before.
func TestACountIsNoProofOfWhatIsWrittenUnderTheFormerKeySince(t *testing.T) {
	for name, again := range map[string]func(*driver){
		"during the count":     func(d *driver) { d.proving(keyB) },
		"after it was counted": func(d *driver) { d.migrated(keyB) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newOnePlugin(t, keyA)
			again(d)
			d.audit(stored("secrets", keyB, 3))
			d.seen.Instances["a"] = writing(d.now, "h", keyA)
			_, done := d.next(time.Second).Done()
			require.False(t, done)
			d.all(keyB)
			decision := d.next(time.Second)
			_, done = decision.Done()
			require.False(t, done, "what a wrote is not counted")
			require.Equal(t, []string{"holding"}, reasons(decision), "nor what it may be writing yet")
			require.IsType(t, rotation.RunAudit{}, d.next(hold).Actions[0])
			d.audit(stored("secrets", keyB, 2), stored("secrets", keyA, 1))
			require.Equal(t, []string{"left"}, reasons(d.next(time.Second)))
		})
	}
}

// A wildcard is also for resources that nobody could name when the plan was made.
func TestWhatIsLeftIsLeftWhateverItIs(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.proving(keyB)
	d.audit(stored("secrets", keyB, 3), stored("things.example.com", keyA, 1), rotation.Count{Resource: "others", Objects: 9})
	decision := d.next(time.Second)
	require.Equal(t, []string{"left"}, reasons(decision))
	require.EqualValues(t, 1, decision.Waiting[0].Objects)
	require.Equal(t, migrate(keyB, 2, "things.example.com"), d.next(time.Hour).Actions)
}

// A configuration that is none of the plan's may write with the old provider.
func TestAForeignConfigurationIsFollowedByAnotherCount(t *testing.T) {
	d := newMoveTest(t)
	d.swapped()
	d.report(rotation.Succeeded, "secrets")
	d.next(1)
	d.audit(rotation.Count{Resource: "secrets", Provider: "new", KeyID: keyB, Objects: 3})
	require.IsType(t, rotation.WriteConfig{}, d.next(1).Actions[0])
	theirs := d.seen.Instances["a"]
	theirs.ConfigHash = "theirs"
	d.seen.Instances["a"] = theirs
	require.Contains(t, reasons(d.next(1)), "foreign_config")
	d.has("a", 2)
	d.has("b", 2)
	for range 3 {
		require.Empty(t, d.next(1).Actions, "what a wrote is not counted")
	}
}

// While nobody looks everything can happen, also that a backup of etcd comes back.
func TestWhatWasProvedIsProvedAgainAfterAPause(t *testing.T) {
	d := newMoveTest(t)
	d.swapped()
	d.report(rotation.Succeeded, "secrets")
	d.next(1)
	d.audit(rotation.Count{Resource: "secrets", Provider: "new", KeyID: keyB, Objects: 3})
	require.IsType(t, rotation.WriteConfig{}, d.next(1).Actions[0])
	d.state = rotation.Resume(d.state, d.now.Add(time.Hour))
	require.Equal(t, []string{"holding"}, reasons(d.next(time.Hour)))
	require.IsType(t, rotation.RunAudit{}, d.next(hold).Actions[0])

	d = newOnePlugin(t, keyA)
	d.migrated(keyB)
	d.state = rotation.Resume(d.state, d.now.Add(time.Hour))
	require.IsType(t, rotation.RunAudit{}, d.next(time.Hour + hold).Actions[0])
	d.audit(stored("secrets", keyB, 3))
	_, done := d.next(1).Done()
	require.True(t, done)
}

func TestAHoldBeginsAnewAfterAPause(t *testing.T) {
	d := newOnePlugin(t, keyA)
	d.all(keyB)
	d.next(0)
	d.state = rotation.Resume(d.state, d.now.Add(time.Hour))
	require.Equal(t, []string{"holding"}, reasons(d.next(time.Hour)))
	require.NotEmpty(t, d.next(hold).Actions)

	d = newMoveTest(t)
	d.has("a", 2)
	d.has("b", 2)
	d.next(1)
	d.has("a", 2)
	d.has("b", 2)
	require.Equal(t, []string{"holding"}, reasons(d.next(1)))
	d.state = rotation.Resume(d.state, d.now.Add(time.Hour))
	require.Equal(t, []string{"holding"}, reasons(d.next(time.Hour)))
}
