package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

const (
	widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`
	widget = `
apiVersion: example.com/v1
kind: Widget
metadata: {name: one, namespace: default}
password: ` + password + `
`
	apiService = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
  name: v1.absent.example.com
  annotations: {password: ` + password + `}
spec:
  group: absent.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: absent, namespace: default}
`
)

// One server, three ways to storage: the core server's, that of custom resources, which
// begins when a definition is created, and the aggregator's.
func TestEveryKindOfResourceIsCiphertextInEtcdAndPlainThroughTheAPI(t *testing.T) {
	t.Parallel()
	etcd, plugin := harness.Etcd(t), harness.StartPlugin(t)
	config := harness.NewConfigFile(t,
		harness.Entry("secrets, widgets.example.com, apiservices.apiregistration.k8s.io", plugin.KMS("one"), harness.Identity))
	server := harness.Start(t, harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: config.Flags()})

	writeSecret(t, server, "core", password)
	require.Equal(t, password, readSecret(t, server, "core"))
	first := sealedAt(t, etcd, secretKey("core"), "one", password)

	defineWidgets(t, server)
	create(t, server, widgets, widget)
	got, err := server.Dynamic.Resource(widgets).Namespace(namespace).Get(t.Context(), "one", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, password, got.Object["password"])
	second := sealedAt(t, etcd, "/registry/example.com/widgets/default/one", "one", password)

	create(t, server, apiServices, apiService)
	got, err = server.Dynamic.Resource(apiServices).Get(t.Context(), "v1.absent.example.com", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, password, got.GetAnnotations()["password"])
	third := sealedAt(t, etcd, "/registry/apiregistration.k8s.io/apiservices/v1.absent.example.com", "one", password)

	require.Equal(t, first.Source, second.Source, "one plugin is one DEK for all of its resources")
	require.Equal(t, first.Source, third.Source, "one plugin is one DEK for all of its resources")

	name := writeConfigMap(t, server)
	require.Contains(t, string(rawAt(t, etcd, configMapKey(name))), password, "what no entry names stays as it is")
}

func defineWidgets(t *testing.T, s *harness.Server) {
	t.Helper()
	create(t, s, definitions, widgetDefinition)
	require.Eventually(t, func() bool {
		definition, err := s.Dynamic.Resource(definitions).Get(t.Context(), "widgets.example.com", metav1.GetOptions{})
		return err == nil && established(definition)
	}, patience, tick)
}

func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == "Established" && condition["status"] == "True" {
			return true
		}
	}
	return false
}
