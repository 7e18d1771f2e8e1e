package suite

import (
	"context"
	"fmt"
	"strings"

	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/envelope"
)

// Setting is where cases are set up, and how large they are. Not for
// concurrent use.
type Setting struct {
	Scale
	lab *side.Lab
	// Plugins with the same keys: one that answers at once, one that gives
	// annotations too, and one that takes the scale's delay.
	plugin, annotating, slow *side.Plugin

	ready   map[string]*side.Side
	corpora map[envelope.WriteMode][]object
}

// NewSetting starts the plugins. All that the setting has lives as long as the lab.
func NewSetting(ctx context.Context, lab *side.Lab, scale Scale) (*Setting, error) {
	s := &Setting{Scale: scale, lab: lab, ready: map[string]*side.Side{}, corpora: map[envelope.WriteMode][]object{}}
	for _, p := range []struct {
		plugin **side.Plugin
		side.Behaviour
	}{
		{&s.plugin, side.Behaviour{}},
		{&s.annotating, side.Behaviour{Annotated: true}},
		{&s.slow, side.Behaviour{Delay: scale.Delay}},
	} {
		var err error
		if *p.plugin, err = lab.Plugin(ctx, p.Behaviour); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// recipe is how a side with a KMS plugin is made.
type recipe struct {
	kms    string             // name of the provider in the file
	mode   envelope.WriteMode // of this library; empty for kube-apiserver
	static bool               // does not follow its file
}

var recipes = map[string]recipe{
	AtrestCounter:    {kms: side.CounterKMS, mode: envelope.Counter},
	AtrestSeed:       {kms: side.SeedKMS, mode: envelope.Seed},
	KubeCounter:      {kms: side.CounterKMS},
	KubeCounterFixed: {kms: side.CounterKMS, static: true},
	KubeSeed:         {kms: side.SeedKMS},
	KubeSeedFixed:    {kms: side.SeedKMS, static: true},
}

// fresh sets a side up that nothing was read or written with. The caller closes it.
func (s *Setting) fresh(ctx context.Context, name string, p *side.Plugin) (*side.Side, error) {
	if name == Tink {
		return s.lab.Tink(ctx, name, p)
	}
	r, ok := recipes[strings.TrimSuffix(name, annotatedSuffix)]
	if !ok {
		return nil, fmt.Errorf("there is no side %q", name)
	}
	file, err := s.lab.KMSFile(r.kms, p)
	if err != nil {
		return nil, err
	}
	c := side.Config{Name: name, File: file, Reload: !r.static}
	if r.mode != "" {
		return s.lab.Atrest(ctx, c, r.mode)
	}
	return s.lab.Kube(ctx, c)
}

// side is the side of that name, which all cases share.
func (s *Setting) side(ctx context.Context, name string) (*side.Side, error) {
	if made := s.ready[name]; made != nil {
		return made, nil
	}
	made, err := s.make(ctx, name)
	if err != nil {
		return nil, err
	}
	s.ready[name] = made
	return made, nil
}

// Renew prepares the shared sides for another round, see [side.Side.Renew].
func (s *Setting) Renew(ctx context.Context) error {
	for _, shared := range s.ready {
		if err := shared.Renew(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Setting) make(ctx context.Context, name string) (*side.Side, error) {
	switch name {
	case Cipher:
		room, err := s.room(ctx, AtrestCounter)
		return side.Cipher(room), err
	case SeedCipher:
		room, err := s.room(ctx, AtrestSeed)
		return side.SeedCipher(room), err
	}
	if strings.HasSuffix(name, annotatedSuffix) {
		return s.fresh(ctx, name, s.annotating)
	}
	return s.fresh(ctx, name, s.plugin)
}

// room is how much longer than the value is what a side stores.
func (s *Setting) room(ctx context.Context, name string) (int, error) {
	of, err := s.side(ctx, name)
	if err != nil {
		return 0, err
	}
	return roomOf(ctx, of)
}

func roomOf(ctx context.Context, of *side.Side) (int, error) {
	value := plaintext(1 << 10)
	stored, err := of.Stored(ctx, value, side.Key("room"))
	return len(stored) - len(value), err
}
