package suite

import (
	"context"

	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/internal/measure"
)

// Setting is where cases are set up, and how large they are. Not for
// concurrent use.
type Setting struct {
	Scale
	lab   *side.Lab
	ready map[string]*side.Side
}

// NewSetting makes a setting. The caller closes it.
func NewSetting(ctx context.Context, scale Scale) (*Setting, error) {
	lab, err := side.NewLab(ctx, scale.Delay)
	return &Setting{scale, lab, map[string]*side.Side{}}, err
}

// side is the side of that name, which all cases share.
func (s *Setting) side(ctx context.Context, name string) (*side.Side, error) {
	if made := s.ready[name]; made != nil {
		return made, nil
	}
	made, err := s.lab.Start(ctx, name, s.lab.Quick)
	if err == nil {
		s.ready[name] = made
	}
	return made, err
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

// Measure has a case measured, with what is said of the case itself before the plan.
func (s *Setting) Measure(ctx context.Context, c Case, plan measure.Plan, book *measure.Book) error {
	loops, err := c.Loops(ctx, s)
	if err != nil {
		return err
	}
	var contestants []measure.Contestant
	if c.once != nil {
		if contestants, err = c.once(ctx, s); err != nil {
			return err
		}
	}
	for _, l := range loops {
		contestants = append(contestants, l)
	}
	plan = c.Plan(plan)
	plan.Before = s.Renew
	if err := plan.Interleave(ctx, contestants, book); err != nil {
		return err
	}
	for _, l := range loops {
		if l.Goroutines > 1 {
			addGain(book, l)
		}
	}
	return nil
}

// Close takes down all that the setting has.
func (s *Setting) Close() error {
	for _, shared := range s.ready {
		shared.Close()
	}
	return s.lab.Close()
}
