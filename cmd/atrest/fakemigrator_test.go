package main

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage/value"
)

// migrations are StorageVersionMigrations, which are done when they are looked at.
func (a *apiserver) migrations(w http.ResponseWriter, r *http.Request, path []string) {
	version := metav1.GroupVersionForDiscovery{GroupVersion: "storagemigration.k8s.io/v1beta1", Version: "v1beta1"}
	name := ""
	if len(path) == 3 {
		name = path[2]
	}
	switch {
	case a.migrator == "":
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not served")
	case len(path) == 0:
		answer(w, http.StatusOK, metav1.APIGroup{Name: "storagemigration.k8s.io", Versions: []metav1.GroupVersionForDiscovery{version}})
	case len(path) == 1:
		answer(w, http.StatusOK, metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "storageversionmigrations", Verbs: []string{"list", "get", "patch"}}}})
	case r.Method == http.MethodPost:
		var m map[string]any
		require.NoError(a.w.t, json.NewDecoder(r.Body).Decode(&m))
		meta := m["metadata"].(map[string]any)
		meta["uid"], meta["resourceVersion"] = "1", "1"
		a.migration[meta["name"].(string)] = m
		answer(w, http.StatusCreated, m)
	case a.migration[name] == nil:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no "+name)
	case r.Method == http.MethodDelete:
		delete(a.migration, name)
		answer(w, http.StatusOK, metav1.Status{Status: "Success"})
	default:
		m := a.migration[name]
		if m["status"] == nil {
			if conditions := a.migrated(m); conditions != nil {
				m["status"] = map[string]any{"conditions": conditions}
			}
		}
		answer(w, http.StatusOK, m)
	}
}

// migrated does a migration and gives its conditions.
func (a *apiserver) migrated(m map[string]any) []metav1.Condition {
	now := metav1.Now()
	switch a.migrator {
	case "ignores":
		return nil
	case "fails":
		return []metav1.Condition{{Type: "Failed", Status: "True", Reason: "Oops", Message: "it did not work", LastTransitionTime: now}}
	case "works":
		of := m["spec"].(map[string]any)["resource"].(map[string]any)
		prefix := "/registry/" + of["resource"].(string) + "/"
		for _, kv := range a.read(&pb.RangeRequest{Key: []byte(prefix), RangeEnd: []byte(prefix[:len(prefix)-1] + "0")}) {
			plaintext, _, err := a.open(kv)
			require.NoError(a.w.t, err)
			sealed, err := a.transformer(string(kv.Key)).TransformToStorage(context.Background(), plaintext, value.DefaultContext(kv.Key))
			require.NoError(a.w.t, err)
			a.w.etcd.Store(string(kv.Key), sealed)
		}
	}
	return []metav1.Condition{{Type: "Succeeded", Status: "True", LastTransitionTime: now}}
}
