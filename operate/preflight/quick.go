package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
		at := string(endpoint(socket))
		failed, _, unknown := quick(ctx, at, conformance.Quick())
		if len(failed) == 0 {
			return unknown
		}
		again, seen, more := quick(ctx, at, failed)
		if len(again) == 0 {
			return cmp.Or(unknown, more)
		}
		return Final(seen)
	}}
}

// quick are those checks that failed, and what was seen of them, and of the others what is not known.
func quick(ctx context.Context, endpoint string, only []string) (failed []string, seen, unknown error) {
	report, err := conformance.Run(ctx, conformance.Target{Endpoint: endpoint}, conformance.Options{Only: only, Interval: quickTime / 6})
	if err != nil {
		return nil, nil, err
	}
	for _, r := range report.Results {
		switch r.Outcome {
		case conformance.Passed:
		case conformance.Failed:
			failed = append(failed, r.ID)
			seen = errors.Join(seen, fmt.Errorf("%s: %s: an apiserver suffers: %s", r.ID, r.Why, r.Suffers))
		default:
			unknown = fmt.Errorf("%s could not be carried out: %s", r.ID, r.Why)
		}
	}
	return failed, seen, unknown
}
