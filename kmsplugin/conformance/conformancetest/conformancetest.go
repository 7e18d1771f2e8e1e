// Package conformancetest runs [conformance] in a Go test: each check is a subtest.
package conformancetest

import (
	"testing"

	"github.com/kube-atrest/atrest/kmsplugin/conformance"
)

// Run holds a plugin to all checks that the target has what they need for. The others are
// skipped. One that could not be carried out fails, as its outcome is not known.
func Run(t *testing.T, target conformance.Target, options conformance.Options) {
	t.Helper()
	report, err := conformance.Run(t.Context(), target, options)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range report.Results {
		t.Run(result.ID, func(t *testing.T) {
			switch result.Outcome {
			case conformance.Passed:
			case conformance.NotTried:
				t.Skip(result.Why)
			case conformance.Failed, conformance.Unknown:
				t.Error(result)
			}
		})
	}
}
