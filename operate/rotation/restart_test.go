package rotation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// newFixedTest is a move of a and b, which do not follow their files and can be restarted.
func newFixedTest(t *testing.T) *driver {
	t.Helper()
	d := newMoveTest(t)
	d.state.Plan.Restarts = true
	d.fix("a", func(*rotation.Instance) {})
	d.fix("b", func(*rotation.Instance) {})
	return d
}

// fix changes an instance that does not follow its file.
func (d *driver) fix(name string, change func(*rotation.Instance)) {
	i := d.seen.Instances[name]
	i.Fixed = true
	change(&i)
	d.seen.Instances[name] = i
}

// wrote lets the file of an instance be that of a stage, and no more.
func (d *driver) wrote(name string, stage int) {
	d.fix(name, func(i *rotation.Instance) { i.FileHash = hashes[name][stage] })
}

// started lets it have its file in effect.
func (d *driver) started(name string, stage int) {
	d.has(name, stage)
	d.fix(name, func(*rotation.Instance) {})
}

func restart(name string, stage int) []rotation.Action {
	return []rotation.Action{rotation.Restart{Instance: name, Hash: hashes[name][stage]}}
}

func TestOneIsRestartedAfterTheOther(t *testing.T) {
	d := newFixedTest(t)
	require.Equal(t, write(rotation.Added, map[string]string{"a": "a1"}), d.next(1).Actions)
	d.wrote("a", 1)
	decision := d.next(1)
	require.Equal(t, restart("a", 1), decision.Actions)
	require.Empty(t, decision.Waiting[0].Remedy, "nobody has to do it")
	decision = d.next(1)
	require.Empty(t, decision.Actions, "it is asked for once")
	require.Equal(t, []string{"other_config", "restarting"}, reasons(decision))
	d.started("a", 1)
	require.Equal(t, write(rotation.Added, map[string]string{"b": "b1"}), d.next(1).Actions)
	d.wrote("b", 1)
	d.fix("a", func(i *rotation.Instance) { i.Unready = "/readyz: etcd failed" })
	decision = d.next(1)
	require.Empty(t, decision.Actions, "a is not ready")
	require.Equal(t, []string{"other_config", "not_ready"}, reasons(decision))
	require.Equal(t, map[string]string{"a": "/readyz: etcd failed"}, decision.Waiting[1].Details)
	d.fix("a", func(i *rotation.Instance) { i.Unready, i.Problem = "", "no answer" })
	require.Empty(t, d.next(1).Actions, "a does not answer")
	d.fix("a", func(i *rotation.Instance) { i.Problem = "" })
	require.Equal(t, restart("b", 1), d.next(1).Actions)
	d.started("b", 1)
	require.Equal(t, write(rotation.Swapped, map[string]string{"a": "a2"}), d.next(1).Actions)
}

// All files are written at once then, and an instance that was started anew shows what it
// writes again when all have been.
func TestTheOldProviderGoesByOneRestartAfterTheOther(t *testing.T) {
	d := newFixedTest(t)
	d.swapped()
	d.report(rotation.Succeeded, "secrets")
	d.next(1)
	d.audit(newSecrets(9))
	require.Equal(t, write(rotation.Removed, map[string]string{"a": "a3", "b": "b3"}), d.next(1).Actions)
	d.wrote("a", 3)
	d.wrote("b", 3)
	require.Equal(t, restart("a", 3), d.next(1).Actions)
	before := d.seen.Shown
	d.started("a", 3)
	d.seen.Shown, d.now = before, d.now.Add(1)
	_, decision := rotation.Next(d.state, d.seen, d.now)
	require.Contains(t, reasons(decision), "unshown")
	require.Equal(t, restart("b", 3), decision.Actions)
}

func TestARestartThatFailedIsAskedForAgainOfTheSame(t *testing.T) {
	d := newFixedTest(t)
	d.wrote("a", 1)
	require.Equal(t, restart("a", 1), d.next(1).Actions)
	retry := time.Duration(d.state.Plan.RetryAfter)
	for range 9 {
		require.Empty(t, d.next(retry/10).Actions)
		d.state = rotation.Resume(d.state, d.now) // whoever asked for it was killed
	}
	d.wrote("b", 1) // it is not b's turn, whoever wrote it
	require.Equal(t, restart("a", 1), d.next(retry/10).Actions)
	d.fix("a", func(i *rotation.Instance) { i.Problem = "no answer" })
	require.Empty(t, d.next(retry).Actions, "a is starting")
	d.fix("a", func(i *rotation.Instance) { i.Problem = "" })
	d.fix("b", func(i *rotation.Instance) { i.Unready = "/readyz: etcd failed" })
	require.Empty(t, d.next(retry).Actions, "b is not ready")
}

// One that is not ready is restarted first, as all others are.
func TestOneThatIsNotReadyMayBeRestarted(t *testing.T) {
	d := newFixedTest(t)
	d.started("a", 1)
	d.started("b", 1)
	d.wrote("a", 2)
	d.wrote("b", 2)
	d.fix("b", func(i *rotation.Instance) { i.Unready = "/readyz: poststarthook failed" })
	require.Equal(t, restart("b", 2), d.next(1).Actions)
}

func TestWhoFollowsItsFileIsNotRestarted(t *testing.T) {
	for name, change := range map[string]func(*driver){
		"it follows":            func(d *driver) { d.fix("a", func(i *rotation.Instance) { i.Fixed = false }) },
		"nobody can restart it": func(d *driver) { d.state.Plan.Restarts = false },
		"its file is foreign":   func(d *driver) { d.fix("a", func(i *rotation.Instance) { i.FileHash = "x" }) },
		"its file is not read":  func(d *driver) { d.fix("a", func(i *rotation.Instance) { i.FileHash = "" }) },
		"b's file is not read":  func(d *driver) { d.fix("b", func(i *rotation.Instance) { i.FileHash = "" }) },
		"one is not named":      func(d *driver) { d.seen.Instances["c"] = rotation.Instance{Problem: "has a Lease"} },
	} {
		d := newFixedTest(t)
		d.wrote("a", 1)
		change(d)
		decision := d.next(1)
		for _, a := range decision.Actions {
			require.IsType(t, rotation.WriteConfig{}, a, name)
		}
		for _, w := range decision.Waiting {
			if w.Reason == "other_config" && (name == "it follows" || name == "nobody can restart it") {
				require.Contains(t, w.Remedy, "restart those that do not follow their file", name)
			}
		}
	}
}

// Whatever the order in which starts are asked for, begin and end, no two are at once, and
// none begins while another instance is not ready.
func TestNeverTwoAtOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newFixedTest(t)
		asked, down := map[string]bool{}, map[string]bool{}
		for range 60 {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "who")
			switch rapid.SampledFrom([]string{"starts", "is back", "fails", "is unready", "is put back", "crash", "time"}).Draw(rt, "what") {
			case "starts":
				if asked[name] {
					down[name] = true
					d.fix(name, func(i *rotation.Instance) { i.Problem = "no answer" })
				}
			case "is back":
				if down[name] {
					asked[name], down[name] = false, false
					d.started(name, stageOf(name, d.seen.Instances[name].FileHash))
				}
			case "fails":
				asked[name] = asked[name] && down[name]
			case "is unready":
				d.fix(name, func(i *rotation.Instance) { i.Unready = rapid.SampledFrom([]string{"", "no"}).Draw(rt, "why") })
			case "is put back":
				d.wrote(name, max(0, stageOf(name, d.seen.Instances[name].FileHash)-1))
			case "crash":
				d.state = rotation.Resume(d.state, d.now)
			case "time":
				d.now = d.now.Add(time.Duration(d.state.Plan.RetryAfter))
				for n := range asked { // what was asked for has begun, or it never does
					asked[n] = asked[n] && down[n]
				}
			}
			for _, a := range d.next(time.Second).Actions {
				switch a := a.(type) {
				case rotation.WriteConfig:
					for n, hash := range a.Hashes {
						d.wrote(n, stageOf(n, hash))
					}
				case rotation.Restart:
					other := map[string]string{"a": "b", "b": "a"}[a.Instance]
					require.False(rt, asked[other] || down[other], "%s is being restarted", other)
					require.Empty(rt, d.seen.Instances[other].Unready+d.seen.Instances[other].Problem)
					asked[a.Instance] = true
				}
			}
		}
	})
}

func stageOf(name, hash string) int {
	for stage, h := range hashes[name] {
		if h == hash {
			return stage
		}
	}
	return 0
}

// What was asked for may be under way, whatever becomes of the file.
func TestARestartIsOverWhenWhatItWasForIsInEffect(t *testing.T) {
	d := newFixedTest(t)
	d.wrote("a", 1)
	require.Equal(t, restart("a", 1), d.next(1).Actions)
	d.wrote("a", 0)
	require.Equal(t, write(rotation.Added, map[string]string{"a": "a1"}), d.next(1).Actions)
	d.wrote("a", 1)
	require.Empty(t, d.next(1).Actions, "it was asked for a moment ago")
	d.started("a", 1)
	d.fix("a", func(i *rotation.Instance) { i.Unready = "/readyz: etcd failed" })
	require.Contains(t, reasons(d.next(1)), "restarting", "it is not ready")
	d.fix("a", func(i *rotation.Instance) { i.Unready = "" })
	require.NotContains(t, reasons(d.next(1)), "restarting")
}

// An apiserver that somebody took out of the rotation meanwhile is not waited for.
func TestOneThatIsReplacedIsNotWaitedFor(t *testing.T) {
	d := newFixedTest(t)
	d.wrote("a", 1)
	require.Equal(t, restart("a", 1), d.next(1).Actions)
	d.state.Plan.Configs = map[string][]string{"b": hashes["b"]}
	delete(d.seen.Instances, "a")
	d.wrote("b", 1)
	require.Equal(t, restart("b", 1), d.next(1).Actions)
}
