package proof

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// AnyOther excuses all apiservers that are not of a fleet: the caller knows that there
// are none, where nobody tells, as of aggregated apiservers.
const AnyOther = "any-other"

// Unnamed are the apiservers that are neither of a fleet nor excused by their name:
// what they write nobody would see. The error is that nobody tells which there are.
func Unnamed(ctx context.Context, f Fleet, without []string) ([]fleet.Other, error) {
	if slices.Contains(without, AnyOther) {
		return nil, nil
	}
	others, err := f.Others(ctx)
	return slices.DeleteFunc(slices.Clone(others), func(o fleet.Other) bool { return slices.Contains(without, o.Name) }), err
}

// Named is an error if there are any that are [Unnamed], or if that is not known.
func Named(ctx context.Context, f Fleet, without []string) error {
	left, err := Unnamed(ctx, f, without)
	if err != nil || len(left) == 0 {
		return err
	}
	var texts []string
	for _, other := range left {
		texts = append(texts, fmt.Sprintf("%s (%s)", other.Name, other.Why))
	}
	return fmt.Errorf("there are apiservers that are not named: %s: name each with --apiservers, or, if it is gone or none of this cluster's, excuse it with --without-apiservers",
		strings.Join(texts, ", "))
}

// Absent are the names among those that are excused which no apiserver has, which may be
// misspelled; none if it is not known which there are.
func Absent(ctx context.Context, f Fleet, a Aggregator, without []string) []string {
	left := slices.DeleteFunc(slices.Clone(without), func(name string) bool { return name == AnyOther || slices.Contains(f.Names(), name) })
	if len(left) == 0 {
		return nil
	}
	others, err := f.Others(ctx)
	aggregated, failed := a.Aggregated(ctx)
	if err != nil || failed != nil {
		return nil
	}
	return slices.DeleteFunc(left, func(name string) bool {
		return slices.ContainsFunc(others, func(o fleet.Other) bool { return o.Name == name }) ||
			slices.ContainsFunc(aggregated, func(o migrate.Aggregated) bool { return o.Service == name })
	})
}
