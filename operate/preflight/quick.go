package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin/conformance"
)

// quickTime bounds the quick checks of one try.
const quickTime = time.Minute

// QuickChecks is the step with [conformance.Quick] of a plugin at the path of a socket. What fails twice in a
// row is final; what could not be carried out, or not in a minute, is not.
func QuickChecks(socket string) Step {
	return Step{Name: "quick checks", Try: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, quickTime)
		defer cancel()
		found := conformance.Quick()
		var first error
		for range 2 {
			if found, first = quick(ctx, string(endpoint(socket)), found); first == nil || len(found) == 0 {
				return first
			}
		}
		return Final(first)
	}}
}

// quick are those checks that failed, and what was seen. An error without any is that something is
// not known.
func quick(ctx context.Context, endpoint string, only []string) (failed []string, err error) {
	report, err := conformance.Run(ctx, conformance.Target{Endpoint: endpoint}, conformance.Options{Only: only, Interval: quickTime / 6})
	if err != nil {
		return nil, err
	}
	var unknown error
	for _, r := range report.Results {
		switch r.Outcome {
		case conformance.Passed:
		case conformance.Failed:
			failed = append(failed, r.ID)
			err = errors.Join(err, fmt.Errorf("%s: %s: an apiserver suffers: %s", r.ID, r.Why, r.Suffers))
		default:
			unknown = fmt.Errorf("%s could not be carried out: %s", r.ID, r.Why)
		}
	}
	if len(failed) == 0 {
		return nil, unknown
	}
	return slices.Clip(failed), err
}
