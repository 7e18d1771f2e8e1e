package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/internal/stored"
)

const (
	// patience bounds each wait for a real server; some wait for the minute between two
	// calls of Status.
	patience = 2 * time.Minute
	tick     = 50 * time.Millisecond

	namespace = "default"
	password  = "correct-horse-battery-staple"
)

func secretKey(name string) string    { return "/registry/secrets/" + namespace + "/" + name }
func configMapKey(name string) string { return "/registry/configmaps/" + namespace + "/" + name }

// writeSecret creates a Secret.
func writeSecret(t *testing.T, s *harness.Server, name, value string) {
	t.Helper()
	client := s.Kube.CoreV1().Secrets(namespace)
	wanted := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"password": value}}
	_, err := client.Create(t.Context(), wanted, metav1.CreateOptions{})
	require.NoError(t, err)
}

// touchSecret changes a Secret, which writes it again.
func touchSecret(t *testing.T, s *harness.Server, name string) {
	t.Helper()
	client := s.Kube.CoreV1().Secrets(namespace)
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		secret, err := client.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		secret.Annotations = map[string]string{"touched": time.Now().String()}
		_, err = client.Update(t.Context(), secret, metav1.UpdateOptions{})
		return err
	}))
}

func readSecret(t *testing.T, s *harness.Server, name string) string {
	t.Helper()
	secret, err := s.Kube.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return string(secret.Data["password"])
}

// writeConfigMap creates a ConfigMap with a name of its own and returns the name.
func writeConfigMap(t *testing.T, s *harness.Server) string {
	t.Helper()
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}, Data: map[string]string{"password": password}}
	made, err := s.Kube.CoreV1().ConfigMaps(namespace).Create(t.Context(), wanted, metav1.CreateOptions{})
	require.NoError(t, err)
	return made.Name
}

func readConfigMap(t *testing.T, s *harness.Server, name string) string {
	t.Helper()
	configMap, err := s.Kube.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return configMap.Data["password"]
}

// create makes the object that manifest describes.
func create(t *testing.T, s *harness.Server, resource schema.GroupVersionResource, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(manifest), &object.Object))
	client := s.Dynamic.Resource(resource).Namespace(object.GetNamespace())
	made, err := client.Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	return made
}

// rawAt returns the bytes in etcd.
func rawAt(t *testing.T, e *etcd.Server, key string) []byte {
	t.Helper()
	raw, err := e.Get(t.Context(), key)
	require.NoError(t, err)
	return raw
}

// sealedAt requires that etcd holds a KMS v2 value of this provider in which plain does
// not occur, and returns the stored object.
func sealedAt(t *testing.T, e *etcd.Server, key, provider, plain string) stored.Object {
	t.Helper()
	raw := string(rawAt(t, e, key))
	require.NotContains(t, raw, plain)
	prefix := "k8s:enc:kms:v2:" + provider + ":"
	require.True(t, strings.HasPrefix(raw, prefix), "%s begins with %q", key, raw[:min(len(raw), len(prefix))])
	object, err := stored.Parse([]byte(raw[len(prefix):]))
	require.NoError(t, err)
	return object
}

// until tries condition, in the test's own goroutine so that it may end the test, until
// it holds.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pause := time.NewTicker(4 * tick)
	defer pause.Stop()
	for !condition() {
		select {
		case <-pause.C:
		case <-ctx.Done():
			require.FailNow(t, "it did not come true that "+what)
		}
	}
}
