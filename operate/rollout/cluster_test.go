package rollout

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// told are the UIDs that apiservers tell their clusters by.
type told struct {
	proof.Fleet
	uids map[string]string
}

func (t told) Cluster(_ context.Context, apiserver string) (string, error) {
	uid, ok := t.uids[apiserver]
	if !ok {
		return "", errors.New(apiserver + " is away")
	}
	return uid, nil
}

func TestNothingIsWrittenThroughTheApiserverOfAnotherCluster(t *testing.T) {
	w := &world{fleet: told{uids: map[string]string{"cp-1": "one", "cp-2": "two"}}}
	canary := func(apiserver string) error {
		_, err := w.Canary(t.Context(), rotation.Canary{Instance: apiserver})
		return err
	}
	var stored rotation.State
	save := w.save(func(s rotation.State) error { stored = s; return nil })
	require.NoError(t, save(rotation.State{}))
	require.Empty(t, stored.Cluster, "nobody told it yet")
	require.ErrorContains(t, canary("cp-3"), "cp-3 is away")
	require.NoError(t, canary("cp-1"))
	require.NoError(t, canary("cp-1"))
	require.ErrorContains(t, canary("cp-2"), `kube-system of apiserver cp-2 has UID "two", and that of this rotation "one"`)
	require.NoError(t, save(rotation.State{}))
	require.Equal(t, "one", stored.Cluster)
	require.NoError(t, save(rotation.State{Cluster: "before"}))
	require.Equal(t, "before", stored.Cluster)
}

// A state that tells no cluster is one from before they were asked for.
func TestTheClusterOfARotationGoesOnWithIt(t *testing.T) {
	r := newRotation(t, exchanging, encryption)
	p, err := r.Prepare(t.Context())
	require.NoError(t, err)
	require.Nil(t, p.world(store(), nil).cluster)
	p.State.Cluster = "one"
	require.NoError(t, r.Folder.save(p.State))
	p, err = r.Prepare(t.Context())
	require.NoError(t, err)
	require.Equal(t, "one", *p.world(store(), nil).cluster)
}
