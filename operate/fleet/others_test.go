package fleet_test

import (
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/fleet"
)

const (
	leasesPath    = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	slicesPath    = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	endpointsPath = "/api/v1/namespaces/default/endpoints/kubernetes"
)

// lease is that of an apiserver on a host, renewed a while before the start.
func lease(host string, before time.Duration) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"kubernetes.io/hostname":%q}},"spec":{"holderIdentity":"x","leaseDurationSeconds":3600,"renewTime":%q}}`,
		"apiserver-"+host, host, start.Add(-before).Format("2006-01-02T15:04:05.000000Z07:00"))
}

func items(all ...string) reply { return reply{200, `{"items":[` + strings.Join(all, ",") + `]}`} }

func endpointSlice(addresses ...string) string {
	var all []string
	for _, a := range addresses {
		all = append(all, fmt.Sprintf(`{"addresses":[%q],"conditions":{"ready":false}}`, a))
	}
	return `{"endpoints":[` + strings.Join(all, ",") + `]}`
}

// on is a stock apiserver on a host, with further answers.
func on(t *testing.T, host string, answers map[string]reply) *server {
	all := called(hashed.ID("apiserver-" + host))
	all[leasesPath] = items()
	maps.Copy(all, answers)
	return newServer(t, all)
}

func others(t *testing.T, f *fleet.Fleet) []fleet.Other {
	t.Helper()
	found, err := f.Others(t.Context())
	require.NoError(t, err)
	return found
}

func TestThereAreNoOthersWhereEveryLeaseIsThatOfAMember(t *testing.T) {
	// The endpoint is the address of a load balancer.
	one := on(t, "one", map[string]reply{leasesPath: items(lease("one", 0), lease("two", 5*time.Second)), slicesPath: items(endpointSlice("10.0.0.9"))})
	f, _ := newFleet(t, one, on(t, "two", nil))
	require.Empty(t, others(t, f))
	require.Equal(t, url.Values{"labelSelector": {"apiserver.kubernetes.io/identity=kube-apiserver"}}.Encode(), one.queries[leasesPath])
	require.Equal(t, url.Values{"labelSelector": {"kubernetes.io/service-name=kubernetes"}}.Encode(), one.queries[slicesPath])
}

// As many Leases as endpoints, or nothing known of endpoints: then the members may
// be behind other addresses.
func TestLeasesAreEnoughWhereNoEndpointIsLeftOver(t *testing.T) {
	for name, slices := range map[string]reply{"as many": items(endpointSlice("10.0.0.9")), "forbidden": {403, "no"}, "none": items()} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFleet(t, on(t, "one", map[string]reply{leasesPath: items(lease("one", 0)), slicesPath: slices}))
			require.Empty(t, others(t, f))
			if name == "forbidden" {
				require.ErrorContains(t, f.Unread(t.Context()), "the user needs the verb list for endpointslices")
			} else {
				require.NoError(t, f.Unread(t.Context()))
			}
		})
	}
}

func TestAnApiserverThatIsNotNamedIsFoundByItsLease(t *testing.T) {
	leases := items(lease("two", 50*time.Minute), lease("one", 0), lease("zero", 0), lease("ended", 61*time.Minute),
		`{"metadata":{"name":"apiserver-?"},"spec":{}}`)
	f, _ := newFleet(t, on(t, "one", map[string]reply{leasesPath: leases}))
	require.Equal(t, []fleet.Other{
		{Name: "apiserver-?", Why: "it has the Lease apiserver-? in namespace kube-system"},
		{Name: "two", Why: "it has the Lease apiserver-two in namespace kube-system, which was last renewed 50m0s ago: it may be gone"},
		{Name: "zero", Why: "it has the Lease apiserver-zero in namespace kube-system"},
	}, others(t, f))
}

// No clock that is wrong makes an apiserver disappear.
func TestALeaseEndsByTheLatestOneOrTheClockHere(t *testing.T) {
	for name, leases := range map[string]reply{
		"here it is later":  items(lease("one", 3*time.Hour), lease("two", 3*time.Hour)),
		"one there is late": items(lease("one", -3*time.Hour), lease("two", 0)),
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFleet(t, on(t, "one", map[string]reply{leasesPath: leases}))
			found := others(t, f)
			require.Len(t, found, 1)
			require.Equal(t, "two", found[0].Name)
		})
	}
}

// Its identity is not known, and its address is the name of the host.
func TestAMemberThatTellsNoIdentityIsKnownByItsHost(t *testing.T) {
	s := newServer(t, map[string]reply{"/debug/encryption": status("kms"), leasesPath: items(lease("127.0.0.1", 0), lease("two", 0))})
	f, _ := newFleet(t, s)
	require.Equal(t, []fleet.Other{{Name: "two", Why: "it has the Lease apiserver-two in namespace kube-system; it may be one of those that tell no identity: a"}}, others(t, f))

	f, _ = newFleet(t, on(t, "one", map[string]reply{leasesPath: items(lease("one", 0), lease("127.0.0.1", 0))}))
	require.Len(t, others(t, f), 1, "one that tells another identity is another")
}

func TestEndpointsTellOfAnApiserverWithoutALease(t *testing.T) {
	one := map[string]reply{leasesPath: items(lease("one", 0)), slicesPath: items(endpointSlice("127.0.0.1", "10.0.0.2"), endpointSlice("10.0.0.2", "::ffff:127.0.0.1", "FD00::1"))}
	f, _ := newFleet(t, on(t, "one", one))
	const why = "it is an endpoint of the Service kubernetes in namespace default, and the address of no apiserver that is named"
	require.Equal(t, []fleet.Other{{Name: "10.0.0.2", Why: why}, {Name: "fd00::1", Why: why}}, others(t, f))
}

func TestWithoutLeasesEveryEndpointHasToBeTheAddressOfAMember(t *testing.T) {
	legacy := reply{200, `{"subsets":[{"addresses":[{"ip":"127.0.0.1"}],"notReadyAddresses":[{"ip":"10.0.0.2"}]}]}`}
	for name, answers := range map[string]map[string]reply{
		"slices":           {leasesPath: items(), slicesPath: items(endpointSlice("127.0.0.1", "10.0.0.2"))},
		"legacy":           {endpointsPath: legacy},
		"slices forbidden": {slicesPath: {403, "no"}, endpointsPath: legacy},
		"slices empty":     {slicesPath: items(), endpointsPath: legacy},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFleet(t, on(t, "one", answers))
			found := others(t, f)
			require.Len(t, found, 1)
			require.Equal(t, "10.0.0.2", found[0].Name)
		})
	}
	s := on(t, "one", map[string]reply{endpointsPath: legacy})
	config := s.config()
	config.Host, config.ServerName = strings.Replace(config.Host, "127.0.0.1", "localhost", 1), "127.0.0.1"
	f, err := fleet.New([]fleet.Member{{Name: "a", Config: config}}, clocktesting.NewFakePassiveClock(start))
	require.NoError(t, err)
	found := others(t, f)
	require.Len(t, found, 2)
	require.Contains(t, found[1].Why, "; it may be one of those that are reached by a name of their host: a")
}

// An aggregated apiserver is known by the name of its host too, which may be that of a
// kube-apiserver.
func TestALeaseIsNotThatOfOneThatServesNone(t *testing.T) {
	kube := on(t, "one", map[string]reply{leasesPath: items(lease("one", 0), lease("two", 0))})
	f, _ := newFleet(t, kube, on(t, "two", map[string]reply{leasesPath: {404, "no"}}))
	require.Equal(t, []fleet.Other{{Name: "two", Why: "it has the Lease apiserver-two in namespace kube-system"}}, others(t, f))
	f, _ = newFleet(t, kube, on(t, "two", map[string]reply{leasesPath: {503, "later"}}))
	require.Empty(t, others(t, f), "it may be a kube-apiserver")
}

// What nobody may look at is not what is not there.
func TestWhereNothingTellsOfOthersTheyAreNotKnown(t *testing.T) {
	const unknown = "which apiservers there are is not known: "
	for name, c := range map[string]struct {
		answers map[string]reply
		want    []string
	}{
		"leases forbidden": {map[string]reply{leasesPath: {403, "no"}, slicesPath: items(endpointSlice("127.0.0.1"))},
			[]string{unknown, "through apiserver a: ", "the user needs the verb list for leases (coordination.k8s.io) in namespace kube-system"}},
		"endpoints forbidden": {map[string]reply{slicesPath: {403, "no"}, endpointsPath: {403, "no"}},
			[]string{unknown, "there is no Lease of one in namespace kube-system, and ", "the user needs the verb list for endpointslices (discovery.k8s.io), or get for endpoints, in namespace default"}},
		"neither": {nil, []string{unknown, "there are no endpoints of the Service kubernetes in namespace default",
			"; of aggregated apiservers nobody tells which there are: name all of them, and say --without-apiservers any-other"}},
		"no endpoint": {map[string]reply{leasesPath: items(), slicesPath: items(endpointSlice())}, []string{unknown}},
		"away":        {map[string]reply{leasesPath: {503, "later"}}, []string{unknown, "through apiserver a: "}},
		"no answer":   {map[string]reply{leasesPath: {200, `{"items":[{"spec":{"renewTime":"soon"}}]}`}}, []string{unknown, "through apiserver a: "}},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFleet(t, on(t, "one", c.answers))
			found, err := f.Others(t.Context())
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			require.Empty(t, found)
		})
	}
}

// An error is a line of a table.
func TestWhatSeveralApiserversRefuseIsOneLine(t *testing.T) {
	no := map[string]reply{leasesPath: {403, "no"}}
	f, _ := newFleet(t, on(t, "one", no), on(t, "two", no))
	_, err := f.Others(t.Context())
	require.ErrorContains(t, err, "; through apiserver b: ")
	require.NotContains(t, err.Error(), "\n")
	require.True(t, apierrors.IsForbidden(err))
}

func TestAMemberThatNeverAnsweredIsNotKnown(t *testing.T) {
	gone := on(t, "two", nil)
	f, _ := newFleet(t, on(t, "one", map[string]reply{leasesPath: items(lease("one", 0))}), gone)
	gone.Close()
	_, err := f.Others(t.Context())
	require.ErrorContains(t, err, "which apiserver b is, is not known: ")
	require.ErrorContains(t, err, "is it up, and can it be reached from here?")
}

// The first one is away by now, and was seen before.
func TestOthersAreAskedForThroughWhoeverAnswers(t *testing.T) {
	gone := on(t, "one", nil)
	f, _ := newFleet(t, gone, on(t, "two", map[string]reply{leasesPath: items(lease("one", 0), lease("two", 0), lease("three", 0))}))
	f.Observe(t.Context())
	gone.Close()
	require.Equal(t, "three", others(t, f)[0].Name)
	require.Len(t, others(t, f), 1)
}

func TestEndpointsThatAreNoneAreNotUnread(t *testing.T) {
	f, _ := newFleet(t, on(t, "one", map[string]reply{slicesPath: items(), endpointsPath: {403, "no"}}))
	require.NoError(t, f.Unread(t.Context()), "who may list the slices need not read what they replace")
	f, _ = newFleet(t, on(t, "one", map[string]reply{slicesPath: {403, "no"}, endpointsPath: {403, "no"}}))
	require.ErrorContains(t, f.Unread(t.Context()), "the user needs the verb list for endpointslices")
}
