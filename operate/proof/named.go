package proof

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Named is an error if there is an apiserver that is neither of a fleet nor
// excused by its name, or if nobody tells which there are: what it writes nobody
// would see.
func Named(ctx context.Context, f Fleet, without []string) error {
	others, err := f.Others(ctx)
	if err != nil {
		return err
	}
	var left []string
	for _, other := range others {
		if !slices.Contains(without, other.Name) {
			left = append(left, fmt.Sprintf("%s (%s)", other.Name, other.Why))
		}
	}
	if left == nil {
		return nil
	}
	return fmt.Errorf("there are apiservers that are not named: %s: name each with --apiservers, or, if it is gone or none of this cluster's, excuse it with --without-apiservers",
		strings.Join(left, ", "))
}
