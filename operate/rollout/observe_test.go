package rollout

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/proof"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// order is who was asked when.
type order struct{ asked []string }

type askedFleet struct {
	proof.Fleet
	*order
}

type askedFiles struct {
	Files
	*order
}

func (askedFleet) Names() []string { return []string{"a"} }

func (askedFleet) Others(context.Context) ([]fleet.Other, error) { return nil, nil }

func (o askedFleet) Observe(context.Context) map[string]rotation.Instance {
	o.asked = append(o.asked, "apiservers")
	return map[string]rotation.Instance{"a": {ConfigHash: "sha256:a"}}
}

func (o askedFiles) Read(_ context.Context, apiserver string) ([]byte, error) {
	o.asked = append(o.asked, "file of "+apiserver)
	return []byte("file"), nil
}

// A program that reaches the files may be slow; what the apiservers answer is not to be
// old for that.
func TestTheFilesAreReadBeforeTheApiserversAnswer(t *testing.T) {
	o := &order{}
	w := &world{fleet: askedFleet{order: o}, rotation: &Rotation{Apiservers: []string{"a"}}, files: map[string]onDisk{}, stages: stages{files: askedFiles{order: o}}}
	seen := w.Observe(t.Context())
	require.Equal(t, []string{"file of a", "apiservers"}, o.asked)
	require.NotEmpty(t, seen["a"].FileHash)
}
