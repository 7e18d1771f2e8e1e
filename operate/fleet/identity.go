package fleet

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// shared is why an answer is not known to be of the apiserver of that name: the one
// that gave it answers for another too, now or the last time. A load balancer may
// lead to one and then to another. It is empty for an answer of its own.
func (f *Fleet) shared(name string, answer rotation.Instance, answers ...map[string]rotation.Instance) string {
	for _, all := range answers {
		for _, other := range slices.Sorted(maps.Keys(all)) {
			switch {
			case other == name:
			case answer.Process != "" && answer.Process == all[other].Process:
				return fmt.Sprintf("what answers here answers as %s too: give the address of each apiserver, past any load balancer", other)
			case alike(answer, all[other]) && !(f.separate[name] && f.separate[other]):
				return fmt.Sprintf("what answers here has the same apiserver_id_hash as %s: give the address of each apiserver, past any load balancer; "+
					"if they are two on hosts of one name, say that they are separate", other)
			}
		}
	}
	return ""
}

// alike reports whether two answers tell one identity, and nothing by which they
// are of two processes.
func alike(a, b rotation.Instance) bool {
	return a.Process == "" && b.Process == "" && a.Server != "" && a.Server == b.Server
}
