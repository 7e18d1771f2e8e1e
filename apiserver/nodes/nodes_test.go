package nodes

import (
	"testing"

	"github.com/kube-atrest/atrest/operate/bundle"
)

func TestOneNode(t *testing.T) {
	k := newKeyFiles(t)
	f := startFleet(t, 1, wish{k.plugin(1, bundle.Program{})})
	f.load.More(t, 20)
	f.load.RequireUndisturbed(t)
	f.load.RequireRead(t)
}
