package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/hashed"
)

// reloads adds a comment to the file that a side follows, waits until the side
// says that it took effect, and counts what that costs the plugin until an
// object of each DEK was read again.
func reloads(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	objects, err := s.corpus(ctx, envelope.Counter)
	if err != nil {
		return nil, err
	}
	var all []measure.Contestant
	for _, name := range []string{AtrestCounter, KubeCounter} {
		all = append(all, &measure.Trial{Name: measure.Name{Case: "Reload", Side: name}, Do: func(ctx context.Context) ([]measure.Point, error) {
			return s.reload(ctx, name, objects)
		}})
	}
	return all, nil
}

func (s *Setting) reload(ctx context.Context, name string, objects []object) ([]measure.Point, error) {
	reader, err := s.fresh(ctx, name, s.plugin)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	if err := readOneOfEach(ctx, reader, objects); err != nil {
		return nil, err
	}
	before := countOf(s.plugin)
	if err := editAndWait(ctx, reader); err != nil {
		return nil, err
	}
	if err := readOneOfEach(ctx, reader, objects); err != nil {
		return nil, err
	}
	after := countOf(s.plugin)
	return []measure.Point{{Sample: measure.Sample{N: 1, Metrics: []measure.Metric{
		{Unit: DecryptCalls, Value: after.decrypt - before.decrypt},
		{Unit: EncryptCalls, Value: after.encrypt - before.encrypt},
		{Unit: StatusCalls, Value: after.status - before.status},
	}}}}, nil
}

// counts are calls to a plugin so far.
type counts struct{ status, encrypt, decrypt float64 }

func countOf(p *side.Plugin) counts {
	return counts{float64(p.Calls.Status.Load()), float64(p.Calls.Encrypt.Load()), float64(p.Calls.Decrypt.Load())}
}

// reloadTimeout is far beyond what any side should take.
const reloadTimeout = 90 * time.Second

func editAndWait(ctx context.Context, reader *side.Side) error {
	before, err := reloadsOf(reader.Name)
	if err != nil {
		return err
	}
	if err := addComment(reader.File); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, reloadTimeout, errors.New("the reload took no effect"))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if now, err := reloadsOf(reader.Name); err != nil || now > before {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", reader.Name, context.Cause(ctx))
		}
	}
}

// addComment replaces the file by one that says the same.
func addComment(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	next := path + ".next"
	if err := os.WriteFile(next, append(text, "# nothing changed\n"...), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// reloadsOf is how many reloads the metrics count for a server, which is how
// both kube-apiserver and the library tell of them.
func reloadsOf(server string) (float64, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return 0, err
	}
	id := hashed.ID(server)
	for _, f := range families {
		if f.GetName() != "apiserver_encryption_config_controller_automatic_reloads_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["status"] == "success" && labels["apiserver_id_hash"] == id {
				return m.GetCounter().GetValue(), nil
			}
		}
	}
	return 0, nil
}
