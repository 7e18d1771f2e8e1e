package conformance_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/kmsplugin/conformance"
)

// hurried is a clock on which every wait is over at once.
type hurried struct{ *clocktesting.FakeClock }

func newHurried() clock.Clock {
	return hurried{clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
}

// After steps over the wait.
func (c hurried) After(d time.Duration) <-chan time.Time {
	c.Step(d)
	over := make(chan time.Time, 1)
	over <- c.Now()
	return over
}

// everything has each check tried.
func everything(p *faultplugin.KMS) conformance.Target {
	return conformance.Target{
		Endpoint: p.Endpoint(), Rotate: p.Rotate, Break: p.Break, Mend: p.Mend, Breaks: conformance.LossOfKMS, Recreate: p.Recreate,
		Restart: p.Restart, Kill: p.Kill, Terminate: p.Terminate, Second: p.Second, Log: p.Log,
	}
}

// fast are options with which a run has few rotations and no long waits. A call has as long as it
// usually has: on a machine that has more to do, one that is fast takes a while too.
func fast() conformance.Options {
	return conformance.Options{Timeout: faultplugin.SlowFor - 100*time.Millisecond, Rotations: 2, Clock: newHurried()}
}

// patient are options for what waits for no end of a timeout: a call has as long as it takes on a
// machine that is busy.
func patient() conformance.Options {
	options := fast()
	options.Timeout = 10 * faultplugin.SlowFor
	return options
}

// waitedFor are the flaws that show, or are lived with, by waiting for the end of the timeout.
var waitedFor = []faultplugin.Flaw{
	faultplugin.SlowOnce, faultplugin.LateInTrouble, faultplugin.Hangs, faultplugin.WaitsInTrouble, faultplugin.LeaksSlots, faultplugin.SecondIsLate, faultplugin.TakesTheSocket,
	faultplugin.HangsOnce, faultplugin.LeaksDecrypts, faultplugin.HidesThePile,
}

// flawed is what has to become of the checks on a plugin with a flaw; those that are not
// named are passed.
var flawed = map[faultplugin.Flaw]struct {
	fails   []string
	unknown []string
	because string // more than one check is concerned
}{
	faultplugin.OldVersion:       {fails: []string{"status-version"}},
	faultplugin.LongKeyID:        {fails: []string{"key-id-form"}},
	faultplugin.ShowsAddress:     {fails: []string{"key-id-clear"}},
	faultplugin.FlappingKeyID:    {fails: []string{"key-id-stable"}},
	faultplugin.AltersNewlines:   {fails: []string{"round-trip"}},
	faultplugin.LeaksPlaintext:   {fails: []string{"ciphertext-hides"}},
	faultplugin.LongCiphertext:   {fails: []string{"ciphertext-size"}},
	faultplugin.ReusesNonce:      {fails: []string{"ciphertext-fresh"}, unknown: []string{"ciphertext-fresh-after-restart"}, because: "what is used twice at once is used twice after a restart, whether that has it begin anew or not"},
	faultplugin.CountsNonces:     {fails: []string{"ciphertext-fresh-after-restart"}},
	faultplugin.BadAnnotation:    {fails: []string{"annotations"}},
	faultplugin.LongAnnotations:  {fails: []string{"annotations"}},
	faultplugin.FirstLabels:      {fails: []string{"labels-agree"}},
	faultplugin.OtherLabel:       {fails: []string{"key-id-after-restart", "labels-agree", "labels-agree-in-rotation", "trouble-ends"}, because: "what never agrees does not agree in a rotation, after a restart or after trouble"},
	faultplugin.LabelsFromBefore: {fails: []string{"labels-agree-in-rotation"}},
	faultplugin.LabelsFromAfter:  {fails: []string{"labels-agree-in-rotation"}},
	faultplugin.StatusFromBefore: {fails: []string{"labels-agree-in-rotation"}},
	faultplugin.StaticKeyID: {fails: []string{"rotation-shows", "key-id-not-reused"}, unknown: []string{"labels-agree-in-rotation", "old-keys-open"},
		because: "a key_id that never changes is that of the key made anew too, and there is no rotation that could be judged"},
	faultplugin.KeyIDOfAllOfIt: {fails: []string{"rotation-shows"}, unknown: []string{"labels-agree-in-rotation", "old-keys-open"},
		because: "there is no rotation that could be judged"},
	faultplugin.ForgetsOldKeys:  {fails: []string{"old-keys-open"}},
	faultplugin.ReusesKeyID:     {fails: []string{"key-id-not-reused"}},
	faultplugin.NewKeyIDAtStart: {fails: []string{"key-id-after-restart"}},
	faultplugin.ForgetsAtStart:  {fails: []string{"key-id-after-restart"}},
	faultplugin.OldAtStart: {fails: []string{"key-id-after-restart", "trouble-ends"},
		because: "what is wrong after a restart is wrong after trouble too"},
	faultplugin.AnyKeyID:         {fails: []string{"refuses-unknown-key-id"}},
	faultplugin.AnyLikeKeyID:     {fails: []string{"refuses-unknown-key-id"}},
	faultplugin.TakesPlaintext:   {fails: []string{"refuses-foreign"}},
	faultplugin.IgnoresTail:      {fails: []string{"refuses-damaged"}},
	faultplugin.LooseAnnotation:  {fails: []string{"refuses-damaged"}},
	faultplugin.EmptyPanics:      {fails: []string{"refuses-empty"}},
	faultplugin.EmptyPanicCaught: {fails: []string{"refuses-empty"}},
	faultplugin.LongPanics:       {fails: []string{"refuses-oversized"}},
	faultplugin.MixesCallers:     {fails: []string{"many-callers"}},
	faultplugin.LeaksSlots:       {fails: []string{"cancelled-calls-end"}},
	faultplugin.LeaksDecrypts:    {fails: []string{"cancelled-calls-end"}},
	faultplugin.SlowOnce:         {fails: []string{"answers-in-time"}},
	faultplugin.HangsOnce:        {fails: []string{"answers-in-time"}},
	faultplugin.SilentTrouble:    {fails: []string{"trouble-shows"}, unknown: []string{"trouble-is-an-error"}, because: "how trouble is told is not known of a plugin that does not tell it"},
	faultplugin.TroubleAsText:    {fails: []string{"trouble-is-an-error"}},
	faultplugin.EmptyInTrouble:   {fails: []string{"trouble-is-an-error"}},
	faultplugin.TellsOnce:        {fails: []string{"trouble-shows"}},
	faultplugin.TextAfterError:   {fails: []string{"trouble-is-an-error"}},
	faultplugin.WaitsInTrouble: {fails: []string{"trouble-class"}, unknown: []string{"deadline-kept"},
		because: "whether calls leave their places cannot be seen where no call is answered"},
	faultplugin.EndsInTrouble: {fails: []string{"deadline-kept"}, unknown: []string{"trouble-class"},
		because: "who ends does not say of what kind the trouble is"},
	faultplugin.LateInTrouble:    {fails: []string{"trouble-class"}},
	faultplugin.UnknownTrouble:   {fails: []string{"trouble-class"}},
	faultplugin.OtherTrouble:     {fails: []string{"trouble-class"}},
	faultplugin.GoneInTrouble:    {fails: []string{"trouble-class"}},
	faultplugin.OtherInTrouble:   {fails: []string{"trouble-ends"}},
	faultplugin.OldAfterTrouble:  {fails: []string{"trouble-ends"}},
	faultplugin.ForgetsInTrouble: {fails: []string{"trouble-ends"}},
	faultplugin.OpenFolder:       {fails: []string{"socket-mode"}},
	faultplugin.OthersSocket:     {fails: []string{"socket-mode"}},
	faultplugin.OthersFolder:     {fails: []string{"socket-mode"}},
	faultplugin.AbstractSocket:   {fails: []string{"socket-mode"}, unknown: []string{"live-socket-stays"}, because: "whether an abstract socket is the same one cannot be seen"},
	faultplugin.GroupsFolder:     {fails: []string{"socket-mode"}},
	faultplugin.HidesThePile: {fails: []string{"deadline-kept", "trouble-class"},
		because: "a Status that waits for a place until its caller has gone tells no kind of trouble"},
	faultplugin.Hangs:            {fails: []string{"deadline-kept", "trouble-class"}, because: "who does not answer tells no kind of trouble"},
	faultplugin.StaysBroken:      {fails: []string{"trouble-ends"}},
	faultplugin.OpenToAll:        {fails: []string{"socket-mode"}},
	faultplugin.OpenAbove:        {fails: []string{"socket-mode"}},
	faultplugin.SecondEndsEarly:  {unknown: []string{"live-socket-stays"}},
	faultplugin.SecondIsLate:     {unknown: []string{"live-socket-stays"}},
	faultplugin.TakesTheSocket:   {fails: []string{"live-socket-stays"}},
	faultplugin.KeepsStaleSocket: {fails: []string{"stale-socket-replaced"}},
	faultplugin.CutsCalls:        {fails: []string{"sigterm-drains"}},
	faultplugin.LogsPlaintext:    {fails: []string{"log-holds-no-key"}},
	faultplugin.KeyInError:       {fails: []string{"errors-hold-no-key"}},
	faultplugin.KeyInDetails:     {fails: []string{"errors-hold-no-key"}},
}

func TestASoundPluginPassesAll(t *testing.T) {
	for name, flaws := range map[string][]faultplugin.Flaw{
		"its ciphertexts tell the key": nil, "only the label tells it": {faultplugin.BindsLabel}, "its ciphertexts are lines of text": {faultplugin.IsALine},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireOutcomes(t, faultplugin.StartKMS(t, flaws...), nil, nil)
		})
	}
}

func TestEachCheckFailsOnThePluginWithThatFlawAndNoOther(t *testing.T) {
	for flaw, want := range flawed {
		t.Run(string(flaw), func(t *testing.T) {
			t.Parallel()
			if slices.Contains([]faultplugin.Flaw{faultplugin.OthersSocket, faultplugin.OthersFolder, faultplugin.GroupsFolder}, flaw) && os.Geteuid() != 0 {
				t.Skip("only root can give a socket away")
			}
			require.Equal(t, len(want.fails)+len(want.unknown) > 1, want.because != "", "say why there is more than one")
			options := patient()
			if slices.Contains(waitedFor, flaw) {
				options = fast()
			}
			requireOutcomesWith(t, options, faultplugin.StartKMS(t, flaw), want.fails, want.unknown)
		})
	}
}

// Each loss is told of as that, by a plugin that knows what it lost.
func TestALossIsToldOfAsThatLoss(t *testing.T) {
	for name, test := range map[string]struct {
		loss conformance.Loss
		code codes.Code
	}{
		"the token is wrong":      {conformance.LossOfCredentials, codes.Unauthenticated},
		"it may not do this":      {conformance.LossOfCredentials, codes.PermissionDenied},
		"the key is disabled":     {conformance.LossOfKey, codes.FailedPrecondition},
		"the key is gone":         {conformance.LossOfKey, codes.NotFound},
		"the KMS does not answer": {conformance.LossOfKMS, codes.Unavailable},
	} {
		for flaw, want := range map[faultplugin.Flaw]conformance.Outcome{"": conformance.Passed, faultplugin.AllIsAway: conformance.Failed} {
			if test.loss == conformance.LossOfKMS {
				want = conformance.Passed
			}
			t.Run(name+string(flaw), func(t *testing.T) {
				t.Parallel()
				p := faultplugin.StartKMS(t, flaw)
				target, options := everything(p), fast()
				target.Break, target.Breaks = p.BreakAs(test.code, name), test.loss
				options.Only = []string{"trouble-shows", "trouble-is-an-error", "trouble-class", "deadline-kept", "trouble-ends"}
				report, err := conformance.Run(t.Context(), target, options)
				require.NoError(t, err)
				for _, result := range report.Results {
					if result.ID == "trouble-class" {
						require.Equal(t, want, result.Outcome, result)
						continue
					}
					require.Equal(t, conformance.Passed, result.Outcome, result)
				}
			})
		}
	}
}

// Most plugins answer Status from memory, and ask a KMS that is far away for all else.
func TestCallsOfStatusAreCancelledThoughAllElseTakesLonger(t *testing.T) {
	t.Parallel()
	options := patient()
	options.Only = []string{"cancelled-calls-end"}
	report, err := conformance.Run(t.Context(), everything(faultplugin.StartKMS(t, faultplugin.FarAway)), options)
	require.NoError(t, err)
	require.Equal(t, conformance.Passed, report.Results[0].Outcome, report.Results[0])
}

// A standby that lags answers all calls under the older key for a while, so that no label is wrong.
func TestAKeyIDThatIsGoneBackToShows(t *testing.T) {
	t.Parallel()
	p := faultplugin.StartKMS(t, faultplugin.GoesBack)
	options := fast()
	options.Only = []string{"rotation-shows"}
	report, err := conformance.Run(t.Context(), everything(p), options)
	require.NoError(t, err)
	require.Equal(t, conformance.Failed, report.Results[0].Outcome)
	require.Contains(t, report.Results[0].Why, "and then that again")
}

// It may lag for longer than a race takes.
func TestAKeyIDThatIsGoneBackToLaterShows(t *testing.T) {
	t.Parallel()
	for _, rotations := range []int{1, 2} {
		p := faultplugin.StartKMS(t, faultplugin.GoesBackForGood)
		options := fast()
		options.Only, options.Rotations = []string{"rotation-shows"}, rotations
		report, err := conformance.Run(t.Context(), everything(p), options)
		require.NoError(t, err)
		require.Equal(t, conformance.Failed, report.Results[0].Outcome, report.Results[0])
	}
}

// Within the interval Decrypt may be well later than Status, and Status not be well again, as where a cloud gives
// a key back to one of its machines after the other.
func TestTroubleMayEndForOneCallAfterTheOther(t *testing.T) {
	for loss, code := range map[conformance.Loss]codes.Code{
		conformance.LossOfKMS: codes.Unavailable, conformance.LossOfCredentials: codes.PermissionDenied, conformance.LossOfKey: codes.FailedPrecondition,
	} {
		for _, late := range []faultplugin.Flaw{faultplugin.LateDecrypt, faultplugin.LateMachine} {
			t.Run(string(loss)+": "+string(late), func(t *testing.T) {
				t.Parallel()
				p, options := faultplugin.StartKMS(t, late), fast()
				options.Only = []string{"trouble-shows", "trouble-class", "trouble-ends"}
				report, err := conformance.Run(t.Context(), conformance.Target{Endpoint: p.Endpoint(), Break: p.BreakAs(code, "it is lost"), Mend: p.Mend, Breaks: loss}, options)
				require.NoError(t, err)
				require.Equal(t, 3, report.Count(conformance.Passed), report.Results)
			})
		}
	}
}

// A KMS that has enough of calls refuses them all, which says nothing of any of them.
func TestWhatIsRefusedForTooManyCallsIsNotKnown(t *testing.T) {
	t.Parallel()
	p := faultplugin.StartKMS(t, faultplugin.Limited)
	options := fast()
	options.Only = []string{"refuses-unknown-key-id", "refuses-foreign", "refuses-damaged", "refuses-empty", "refuses-oversized", "labels-agree-in-rotation", "old-keys-open"}
	report, err := conformance.Run(t.Context(), everything(p), options)
	require.NoError(t, err)
	require.Equal(t, len(options.Only), report.Count(conformance.Unknown), report.Results)
}

func TestWhatIsTooMuchAfterARestartIsNotLost(t *testing.T) {
	t.Parallel()
	options := fast()
	options.Only = []string{"key-id-after-restart"}
	report, err := conformance.Run(t.Context(), everything(faultplugin.StartKMS(t, faultplugin.Limited)), options)
	require.NoError(t, err)
	require.Equal(t, conformance.Unknown, report.Results[0].Outcome, report.Results[0])
}

// A check that never fails alone would be one that another one makes, too.
func TestEachCheckIsSeenToFailAlone(t *testing.T) {
	alone := map[string]bool{}
	for _, want := range flawed {
		if len(want.fails) == 1 {
			alone[want.fails[0]] = true
		}
	}
	for _, check := range conformance.Checks() {
		require.True(t, alone[check.ID], "no plugin fails %s alone", check.ID)
	}
}

// A time or a counter in front of a ciphertext is not taken for a key. How they go on is
// seen on the system's clock alone.
func TestWhatIsInFrontOfACiphertextIsNotTakenForAKey(t *testing.T) {
	for _, front := range []faultplugin.Flaw{faultplugin.TimeInFront, faultplugin.CounterInFront} {
		t.Run(string(front), func(t *testing.T) {
			t.Parallel()
			p := faultplugin.StartKMS(t, front)
			report, err := conformance.Run(t.Context(), conformance.Target{Endpoint: p.Endpoint(), Rotate: p.Rotate},
				conformance.Options{Only: []string{"labels-agree-in-rotation", "old-keys-open"}})
			require.NoError(t, err)
			require.Equal(t, 2, report.Count(conformance.Passed), report.Results)
		})
	}
}

// A label that is wrong shows by the value that does not open, where nothing in front of
// a ciphertext shows it.
func TestALabelRaceShowsWhereOnlyTheLabelTellsTheKey(t *testing.T) {
	t.Parallel()
	requireOutcomes(t, faultplugin.StartKMS(t, faultplugin.LabelsFromAfter, faultplugin.BindsLabel), []string{"labels-agree-in-rotation"}, nil)
}

// Where neither a ciphertext nor Decrypt tells the key, a race may be there or not.
func TestALabelRaceThatCannotBeSeenIsNotPassed(t *testing.T) {
	for name, flaws := range map[string][]faultplugin.Flaw{
		"there is none": {faultplugin.HidesKey},
		"there is one":  {faultplugin.HidesKey, faultplugin.LabelsFromAfter},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireOutcomes(t, faultplugin.StartKMS(t, flaws...), nil, []string{"labels-agree-in-rotation"})
		})
	}
}

// What cannot be carried out with a plugin of one mistake is no mistake of its own.
func TestAPluginThatNamesNoKeyFailsThatCheckAlone(t *testing.T) {
	for flaw, fails := range map[faultplugin.Flaw]string{
		faultplugin.OnlyV1: "status-version", faultplugin.NoKeyID: "key-id-form", faultplugin.BrokenKeyID: "key-id-form",
	} {
		t.Run(string(flaw), func(t *testing.T) {
			t.Parallel()
			report, err := conformance.Run(t.Context(), everything(faultplugin.StartKMS(t, flaw)), fast())
			require.NoError(t, err)
			for _, result := range report.Results {
				require.Equal(t, result.ID == fails, result.Outcome == conformance.Failed, result)
				if result.Needs != nil && result.ID != "log-holds-no-key" {
					require.Equal(t, conformance.Unknown, result.Outcome, result)
				}
			}
		})
	}
}

// What no client takes is told of as what it may be.
func TestANameOfAnAnnotationThatIsNotUTF8IsNoWrongKeyID(t *testing.T) {
	t.Parallel()
	options := patient()
	options.Only = []string{"key-id-form"}
	report, err := conformance.Run(t.Context(), everything(faultplugin.StartKMS(t, faultplugin.BrokenAnnotation)), options)
	require.NoError(t, err)
	require.Equal(t, 1, report.Count(conformance.Failed))
	require.Contains(t, report.Results[0].Why, "the key_id, or the name of an annotation")
}

// A key that was rotated, deleted and made again has its first key_id once more. Who names
// keys by their version shows it when that happens twice.
func TestAKeyIDThatIsUsedAgainShowsThoughTheKeyWasRotatedBefore(t *testing.T) {
	t.Parallel()
	p := faultplugin.StartKMS(t, faultplugin.ReusesKeyID)
	require.NoError(t, p.Rotate(t.Context()))
	requireOutcomes(t, p, []string{"key-id-not-reused"}, nil)
}

func requireOutcomes(t *testing.T, p *faultplugin.KMS, fails, unknown []string) {
	t.Helper()
	requireOutcomesWith(t, patient(), p, fails, unknown)
}

const inRotation = "labels-agree-in-rotation"

func requireOutcomesWith(t *testing.T, options conformance.Options, p *faultplugin.KMS, fails, unknown []string) {
	t.Helper()
	got, want := map[string]conformance.Outcome{}, map[string]conformance.Outcome{}
	for range 3 {
		report, err := conformance.Run(t.Context(), everything(p), options)
		require.NoError(t, err)
		for _, result := range report.Results {
			got[result.ID], want[result.ID] = result.Outcome, conformance.Passed
			if result.Outcome != conformance.Passed {
				t.Logf("%s: %s: %s", result.ID, result.Outcome, result.Why)
			}
		}
		if !slices.Contains(fails, inRotation) || got[inRotation] == conformance.Failed {
			break
		} // a race may be lost by chance, on a machine that is busy
	}
	for _, id := range fails {
		want[id] = conformance.Failed
	}
	for _, id := range unknown {
		want[id] = conformance.Unknown
	}
	require.Equal(t, want, got)
}
