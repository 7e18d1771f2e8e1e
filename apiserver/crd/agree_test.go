package crd_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kube-atrest/atrest/internal/apicase"
	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
)

// What people write is tried at every place of every object that is accepted.
func TestGoAndTheDefinitionsAgreeOnOddTexts(t *testing.T) {
	all, tried := read(t), 0
	for odd := range apicase.Odd(t) {
		d := all[odd.Object["kind"].(string)]
		inGo := apicase.Told(goErrors(t, odd.Object))
		defaulting.Default(odd.Object, d.structural)
		served := apicase.Told(d.validate(&unstructured.Unstructured{Object: odd.Object}))
		require.Equal(t, served, inGo, odd)
		tried++
	}
	t.Logf("%d objects", tried)
	require.Greater(t, tried, 10000)
}

// goErrors are those that Go finds.
func goErrors(t *testing.T, object map[string]any) field.ErrorList {
	t.Helper()
	text, err := json.Marshal(object)
	require.NoError(t, err)
	if object["kind"] == v1alpha1.VaultKMSConfigKind {
		var o v1alpha1.VaultKMSConfig
		require.NoError(t, json.Unmarshal(text, &o))
		return o.Validate()
	}
	var o v1alpha1.EncryptionAtRest
	require.NoError(t, json.Unmarshal(text, &o))
	return o.Validate()
}
