package proof

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// OneCluster is by which UID apiservers tell their cluster, empty if none of them does.
// It is an error if they tell different ones, or only some of them tell one, or one does
// not answer.
func OneCluster(ctx context.Context, f Fleet, apiservers []string) (string, error) {
	by := map[string][]string{}
	uid := ""
	for _, name := range apiservers {
		var err error
		if uid, err = f.Cluster(ctx, name); err != nil {
			return "", err
		}
		by[uid] = append(by[uid], name)
	}
	if len(by) < 2 {
		return uid, nil
	}
	var texts []string
	for _, uid := range slices.Sorted(maps.Keys(by)) {
		texts = append(texts, strings.Join(by[uid], ", ")+" "+told(uid))
	}
	return "", fmt.Errorf("the apiservers are not of one cluster: %s: name those of one alone", strings.Join(texts, "; "))
}

// ErrNoUID says that one of two does not tell which cluster it is of.
var ErrNoUID = errors.New("the namespace kube-system has no UID that can be read in both")

// SameCluster is an error unless what holds objects is of the same cluster as something
// else, by the UID that the namespace kube-system has in each. It wraps [ErrNoUID] if that
// is not known. A cluster never changes that UID, so that the oldest backup has it too.
func SameCluster(what, uid, than, other string) error {
	switch {
	case uid == "" || other == "":
		return fmt.Errorf("whether %s is of the same cluster as %s is not known: %w", what, than, ErrNoUID)
	case uid != other:
		return fmt.Errorf("%s is of another cluster than %s: its namespace kube-system has another UID: name one of the same cluster", what, than)
	}
	return nil
}

// told says by which UID an apiserver tells its cluster.
func told(uid string) string {
	if uid == "" {
		return "serves no namespaces"
	}
	return "has a namespace kube-system with UID " + uid
}
