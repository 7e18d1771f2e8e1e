package overview_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/overview"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// asked is a fleet of "cp-1", each question to which takes a second.
type asked struct {
	proof.Fleet // what a look has no need of
	clock       *testingclock.FakeClock
	told        rotation.Instance
	others      []fleet.Other
	err         error
}

func (f *asked) Names() []string { return []string{"cp-1"} }

func (f *asked) Observe(context.Context) map[string]rotation.Instance {
	f.clock.Step(time.Second)
	if f.told.CheckedAt.IsZero() && f.told.Problem == "" {
		f.told.CheckedAt = f.clock.Now()
	}
	return map[string]rotation.Instance{"cp-1": f.told}
}

func (f *asked) Cluster(context.Context, string) (string, error) {
	return "", errors.New("nobody is to be compared with")
}

func (f *asked) Others(context.Context) ([]fleet.Other, error) {
	f.clock.Step(time.Hour)
	return f.others, f.err
}

func TestALookAsksForAllThatIsJudged(t *testing.T) {
	f := &asked{clock: testingclock.NewFakeClock(now), told: ours(), others: []fleet.Other{{Name: "cp-2", Why: "it has a Lease"}, {Name: "gone", Why: "it has a Lease"}}}
	f.told.CheckedAt = time.Time{}
	etcd := &overview.Etcd{Place: "etcd"}
	s := overview.Look(t.Context(), f, []string{"gone"}, f.clock, func(context.Context) *overview.Etcd { return etcd })
	require.Equal(t, overview.Seen{Began: now, Ended: now.Add(time.Second), Apiservers: []string{"cp-1"}, Told: map[string]rotation.Instance{"cp-1": f.told},
		Unnamed: map[string]string{"cp-2": "it has a Lease"}, Clusters: map[string]overview.Cluster{}, Etcd: etcd}, s)
}

func TestALookThatDoesNotLearnWhoThereIs(t *testing.T) {
	f := &asked{clock: testingclock.NewFakeClock(now), err: errors.New("the Leases cannot be read")}
	s := overview.Look(t.Context(), f, nil, f.clock, nil)
	require.Equal(t, "the Leases cannot be read", s.Untold)
	require.Nil(t, s.Etcd)
	require.Empty(t, overview.Look(t.Context(), f, []string{proof.AnyOther}, f.clock, nil).Untold)
}

// pair is two apiservers, one of which answered and is of a cluster of its own.
type pair struct{ asked }

func (f *pair) Names() []string { return []string{"cp-1", "cp-2", "cp-3"} }

func (f *pair) Observe(context.Context) map[string]rotation.Instance {
	at := rotation.Instance{CheckedAt: f.clock.Now()}
	return map[string]rotation.Instance{"cp-1": at, "cp-2": at, "cp-3": {Problem: "is it up?"}}
}

func (f *pair) Cluster(_ context.Context, name string) (string, error) {
	if name == "cp-2" {
		return "", fmt.Errorf("which cluster apiserver cp-2 is of is not known: %w", errors.New("forbidden")) // as a Fleet says it
	}
	return "of " + name, nil
}

func TestALookAsksThoseThatAnswerForTheirCluster(t *testing.T) {
	f := &pair{asked{clock: testingclock.NewFakeClock(now)}}
	require.Equal(t, map[string]overview.Cluster{"cp-1": {UID: "of cp-1"}, "cp-2": {Problem: "forbidden"}}, overview.Look(t.Context(), f, nil, f.clock, nil).Clusters)
}

// Of one that never answered nobody knows which of the others it is.
func TestALookAtOneThatNeverAnsweredNamesNoOthers(t *testing.T) {
	f := &asked{clock: testingclock.NewFakeClock(now), told: rotation.Instance{Problem: "is it up?"}, others: []fleet.Other{{Name: "cp-1"}}}
	s := overview.Look(t.Context(), f, nil, f.clock, nil)
	require.Empty(t, s.Unnamed)
	require.Equal(t, "Unknown: cp-1 cannot be seen.", overview.Of(s).Summary)
}

// hanging is an apiserver that does not answer, and counts how often it is asked.
type hanging struct {
	proof.API
	asked *int
}

func (h hanging) Version(context.Context, schema.GroupResource) (schema.GroupVersionResource, error) {
	*h.asked++
	return schema.GroupVersionResource{}, errors.New("no answer within 10s")
}

// Of a wildcard there may be many resources. Each is read, but by an apiserver that does not
// answer, which would be waited for each time.
func TestALookReadsAnObjectOfEachResource(t *testing.T) {
	v1 := "k8s:enc:kms:v1:old:\x00\x10" + strings.Repeat("x", 60)
	report, etcd := &audit.Report{Objects: 150}, store{}
	for n := range 150 {
		key := fmt.Sprintf("/registry/example.com/r%d/shop/one", n)
		etcd[key] = v1
		report.Resources = append(report.Resources, audit.Resource{Name: fmt.Sprintf("r%d.example.com", n),
			Forms: []audit.Count{{Form: audit.Inspect([]byte(v1), nil).Form, Objects: 1, Keys: []string{key}}}})
	}
	s := look(stock)
	change(&s, "cp-1", provider("old", func(p *rotation.Provider) { p.KeyID = "" }))
	s.Read(t.Context(), &proof.Prover{})
	require.Nil(t, s.Etcd)
	s.Etcd = &overview.Etcd{Report: report}
	s.Read(t.Context(), &proof.Prover{API: reader{}, Fleet: readers{}, Etcd: etcd, Layout: audit.NewLayout("", nil)})
	require.Len(t, s.Etcd.Reads, 150)
	for _, r := range s.Etcd.Reads {
		require.Equal(t, overview.Well, r.Verdict, r)
	}

	asked := 0
	s.Etcd = &overview.Etcd{Report: report}
	s.Read(t.Context(), &proof.Prover{API: hanging{asked: &asked}, Layout: audit.NewLayout("", nil)})
	require.Equal(t, 1, asked)
	require.Len(t, s.Etcd.Reads, 150)
	require.Equal(t, "no answer within 10s", s.Etcd.Reads[0].Why)
	for _, r := range s.Etcd.Reads[1:] {
		require.Equal(t, overview.Unknown, r.Verdict, r)
		require.Equal(t, "not asked, as another was not answered for: no answer within 10s", r.Why)
	}
}

// reader is an apiserver that reads all that is in etcd.
type reader struct{ proof.API }

func (reader) Version(_ context.Context, r schema.GroupResource) (schema.GroupVersionResource, error) {
	return r.WithVersion("v1"), nil
}

func (reader) Revision(context.Context, schema.GroupVersionResource, migrate.Object) (int64, error) {
	return 0, nil
}

// readers are a fleet of that.
type readers struct{ proof.Fleet }

func (readers) Names() []string { return []string{"cp-1"} }

func (readers) Read(context.Context, string, schema.GroupVersionResource, fleet.Written) error {
	return nil
}

// store has a value by its etcd key.
type store map[string]string

func (store) String() string                                        { return "etcd" }
func (store) Read(context.Context, string) (*audit.Contents, error) { panic("nobody walks") }

func (s store) Find(_ context.Context, key string) (audit.Entry, error) {
	value, ok := s[key]
	if !ok {
		return audit.Entry{}, audit.ErrNotFound
	}
	return audit.Entry{Key: key, Value: []byte(value)}, nil
}

// One that was written or deleted since it was counted shows nothing of the others.
func TestALookReadsTheNextObjectThatStayed(t *testing.T) {
	v1 := "k8s:enc:kms:v1:old:\x00\x10" + strings.Repeat("x", 60)
	form := audit.Inspect([]byte(v1), nil).Form
	keys := []string{"/registry/secrets/shop/a", "/registry/secrets/shop/b", "/registry/secrets/shop/c", "/registry/secrets/shop/d"}
	for there, want := range map[string]overview.Read{
		keys[2]: {Key: keys[2], Resource: "secrets", Form: form, Verdict: overview.Well},
		keys[3]: {Key: keys[2], Resource: "secrets", Form: form, Verdict: overview.Unknown},
	} {
		s := look(stock)
		s.Etcd = &overview.Etcd{Report: &audit.Report{Objects: 4, Resources: []audit.Resource{{Name: "secrets", Forms: []audit.Count{{Form: form, Objects: 4, Keys: keys}}}}}}
		change(&s, "cp-1", provider("old", func(p *rotation.Provider) { p.KeyID = "" }))
		s.Read(t.Context(), &proof.Prover{API: reader{}, Fleet: readers{}, Etcd: store{keys[0]: "{}", there: v1}, Layout: audit.NewLayout("", nil)})
		require.Len(t, s.Etcd.Reads, 1)
		if want.Verdict == overview.Unknown {
			require.Contains(t, s.Etcd.Reads[0].Why, keys[2]+" was written since it was counted")
			s.Etcd.Reads[0].Why = ""
		}
		require.Equal(t, want, s.Etcd.Reads[0])
	}
}
