package conformance

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
)

// A Loss is what [Target.Break] takes away from the plugin.
type Loss string

// The losses.
const (
	LossOfKMS         Loss = "kms"         // it is not reached, or does not answer
	LossOfCredentials Loss = "credentials" // they are wrong, have ended, or may not do this
	LossOfKey         Loss = "key"         // it is disabled or deleted
)

// lossCodes are those that tell of a loss; the empty one is any. DeadlineExceeded is none, as
// it may be the caller's own word.
var lossCodes = map[Loss][]codes.Code{
	"": {codes.Unavailable, codes.PermissionDenied, codes.Unauthenticated,
		codes.ResourceExhausted, codes.FailedPrecondition, codes.NotFound, codes.Aborted},
	LossOfKMS:         {codes.Unavailable},
	LossOfCredentials: {codes.PermissionDenied, codes.Unauthenticated},
	LossOfKey:         {codes.FailedPrecondition, codes.NotFound},
}

// check is an error for a loss that there is not.
func (l Loss) check() error {
	if _, known := lossCodes[l]; !known {
		return fmt.Errorf("loss %q: it is one of %s, %s and %s", string(l), LossOfKMS, LossOfCredentials, LossOfKey)
	}
	return nil
}

// told is why a code does not tell of a loss, or nil.
func (l Loss) told(code codes.Code) error {
	right := lossCodes[l]
	switch {
	case slices.Contains(right, code):
		return nil
	case l == "":
		return fmt.Errorf("%s does not say of what kind the trouble is", code)
	}
	var names []string
	for _, c := range right {
		names = append(names, c.String())
	}
	return fmt.Errorf("%s does not say that %s lost, as %s do", code, map[Loss]string{LossOfKMS: "the KMS is", LossOfCredentials: "credentials are", LossOfKey: "the key is"}[l], strings.Join(names, " and "))
}
