package proof

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/operate/migrate"
)

// Aggregator tells which aggregated apiservers there are: [migrate.Cluster].
type Aggregator interface {
	Aggregated(context.Context) ([]migrate.Aggregated, error)
}

// Beside tells of the aggregated apiservers of a cluster that serve groups which matter,
// a line for each that is not named by its Service: what they keep is not looked for
// unless somebody names them. Nearly every cluster has some, which keep nothing, so this
// is in the way of nothing.
func Beside(ctx context.Context, a Aggregator, matters func(group string) bool, named []string) []string {
	if slices.Contains(named, AnyOther) {
		return nil
	}
	all, err := a.Aggregated(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	var texts []string
	for _, other := range all {
		if slices.Contains(named, other.Service) || !slices.ContainsFunc(other.Groups, matters) {
			continue
		}
		texts = append(texts, fmt.Sprintf("the aggregated apiserver %s serves %s, and may keep objects of it with keys of its own, which was not asked: "+
			"if it encrypts, rotate it by itself, and name all of it with --apiservers for retire; then, or if it does not, excuse it with --without-apiservers", other.Service, strings.Join(other.Groups, ", ")))
	}
	return texts
}
