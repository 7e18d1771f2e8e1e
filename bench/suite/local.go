package suite

import (
	"context"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/envelope"
)

// Kind is the parameter of a provider that holds its key, and of what is done.
func Kind(kind, op string) string { return "kind=" + kind + "/" + op }

// LocalKinds are the names of the providers that hold their key.
func LocalKinds() []string {
	var names []string
	for _, k := range localKinds {
		names = append(names, k.name)
	}
	return names
}

// localKinds are the providers that hold their key, with the floor of each.
var localKinds = []struct {
	name  string
	floor func(room int) *side.Side
}{
	{"aesgcm", side.RandomNonceCipher},
	{"secretbox", side.Secretbox},
	{"aescbc", side.CBC},
}

// local writes and reads 1 KiB with the providers that hold their key.
func local(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	var all []measure.Contestant
	for _, kind := range localKinds {
		sides, err := s.localSides(ctx, kind.name, kind.floor)
		if err != nil {
			return nil, err
		}
		for _, op := range operations {
			for _, made := range sides {
				l, err := op.loop(ctx, measure.Name{Case: "Local", Params: Kind(kind.name, op.param), Side: made.Name}, made, kib)
				if err != nil {
					return nil, err
				}
				all = append(all, l)
			}
		}
	}
	return all, nil
}

func (s *Setting) localSides(ctx context.Context, kind string, floor func(room int) *side.Side) ([]*side.Side, error) {
	file, err := s.lab.KeyFile(kind)
	if err != nil {
		return nil, err
	}
	ours, err := s.lab.Atrest(ctx, side.Config{Name: Atrest, File: file, Reload: true}, envelope.Counter)
	if err != nil {
		return nil, err
	}
	room, err := roomOf(ctx, ours)
	if err != nil {
		return nil, err
	}
	dynamic, err := s.lab.Kube(ctx, side.Config{Name: Kube, File: file, Reload: true})
	if err != nil {
		return nil, err
	}
	static, err := s.lab.Kube(ctx, side.Config{Name: KubeFixed, File: file})
	return []*side.Side{floor(room), ours, dynamic, static}, err
}
