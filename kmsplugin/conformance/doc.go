// Package conformance holds a KMS v2 plugin (KEP-3299) to what an apiserver needs of it,
// at the plugin's socket alone: in comes the endpoint of one that runs, and functions that
// rotate its key, break its KMS or end its process; out comes, for each [Check], whether it
// was passed, and if not what was seen. The plugin may be written in any language.
//
// A check that needs a function which is not there was not tried, and one that could not
// be carried out is unknown: neither is ever passed.
//
//	report, err := conformance.Run(ctx, conformance.Target{Endpoint: "unix:///run/kms.sock"}, conformance.Options{})
//
// In a Go test, package conformancetest makes each check a subtest; on the command line
// it is atrest conform. The limits are those of KEP-3299, written down here once more: a
// suite that took them from a kit would not find the kit's mistakes.
package conformance
