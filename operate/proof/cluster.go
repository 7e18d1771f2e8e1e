package proof

import (
	"context"
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

// told says by which UID an apiserver tells its cluster.
func told(uid string) string {
	if uid == "" {
		return "serves no namespaces"
	}
	return "has a namespace kube-system with UID " + uid
}
