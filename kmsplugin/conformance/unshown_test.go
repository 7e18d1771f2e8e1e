package conformance_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/kmsplugin/conformance"
)

// The KMS has rotated, though the command fails or the plugin is slower to see it than the interval, and the
// plugin sees it later: nothing but the rotation has changed the key_id.
func TestARotationThatShowsLateIsNobodyElsesChange(t *testing.T) {
	for name, test := range map[string]struct {
		rotate error
		seenBy string // what has the plugin look
		shows  conformance.Outcome
		judged string
	}{
		"the command fails":    {errors.New("timed out"), "mend", conformance.Unknown, "trouble-ends"},
		"trouble comes before": {nil, "mend", conformance.Failed, "trouble-ends"},
		"a start sees it":      {nil, "restart", conformance.Failed, "key-id-after-restart"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, options := faultplugin.StartKMS(t), patient()
			unseen := false
			look := func(by string, do func(context.Context) error) func(context.Context) error {
				return func(ctx context.Context) error {
					if unseen && by == test.seenBy {
						unseen = false
						return errors.Join(p.Rotate(ctx), do(ctx))
					}
					return do(ctx)
				}
			}
			target := conformance.Target{
				Endpoint: p.Endpoint(), Break: p.Break, Mend: look("mend", p.Mend), Restart: look("restart", p.Restart),
				Rotate: func(context.Context) error { unseen = true; return test.rotate },
			}
			options.Only = []string{"rotation-shows", test.judged}
			report, err := conformance.Run(t.Context(), target, options)
			require.NoError(t, err)
			require.Equal(t, map[string]conformance.Outcome{"rotation-shows": test.shows, test.judged: conformance.Unknown}, outcomes(report), report.Results)
			require.Contains(t, report.Results[1].Why, "it may be that of a rotation")
		})
	}
}
