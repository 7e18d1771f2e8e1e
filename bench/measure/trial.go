package measure

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// Trial is something that is done once a round and measures itself.
type Trial struct {
	Name
	// Do gives what it found. A point's parameter goes into the name.
	Do func(ctx context.Context) ([]Point, error)
}

// Point is a sample taken on the way; Param tells where, and may be empty.
type Point struct {
	Param string
	Sample
}

var _ Contestant = (*Trial)(nil)

// Round does it.
func (t *Trial) Round(ctx context.Context, _ time.Duration) ([]Measurement, error) {
	runtime.GC()
	points, err := t.Do(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	var found []Measurement
	for _, p := range points {
		name := t.Name
		if p.Param != "" {
			name = name.With(p.Param)
		}
		found = append(found, Measurement{name, p.Sample})
	}
	return found, nil
}

// Bench does it once for each iteration of a Go benchmark and reports the last
// point.
func (t *Trial) Bench(b *testing.B) {
	for b.Loop() {
		points, err := t.Do(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range points[len(points)-1].Metrics {
			b.ReportMetric(m.Value, m.Unit)
		}
	}
}
