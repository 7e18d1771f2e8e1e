package audit

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
)

func TestDEKsAreToldApartUpToALimit(t *testing.T) {
	tally := newTally(1)
	tally.deks = maxDEKs - 2
	add := func(resource, dek string) {
		i := Inspection{Form: Form{Kind: config.KMSv1, Name: "old"}, WrappedDEK: []byte(dek)}
		tally.add(Object{Key: "/registry/x"}, schema.GroupResource{Resource: resource}, true, i, nil)
	}
	for _, dek := range []string{"1", "1", "2", "2", "3", "1"} {
		add("secrets", dek)
	}
	add("pods", "1")
	r := tally.report()
	secrets, pods := r.Resources[1].Forms[0], r.Resources[0].Forms[0]
	require.Equal(t, int64(2), secrets.DEKs)
	require.True(t, secrets.DEKsAtLeast)
	require.Zero(t, pods.DEKs)
	require.True(t, pods.DEKsAtLeast)
	require.Equal(t, maxDEKs, tally.deks)
}

func TestResourcesThatAreGuessedAreListedUpToALimit(t *testing.T) {
	tally := newTally(1)
	for i := range MaxRows + 10 {
		resource := schema.GroupResource{Resource: fmt.Sprintf("gadgets%05d", i)}
		tally.add(Object{Key: "/registry/x"}, resource, false, Inspection{Form: Form{Kind: Plaintext}}, nil)
	}
	require.Len(t, tally.report().Guessed, MaxRows)
}
