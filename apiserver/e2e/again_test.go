package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/internal/kubeapi"
)

// storeAgain asks for an object to be stored again as it is, whatever else the patch says.
func storeAgain(t *testing.T, by kubernetes.Interface, resource, name, patch string) (*metav1.PartialObjectMetadata, error) {
	t.Helper()
	var is metav1.PartialObjectMetadata
	return &is, by.CoreV1().RESTClient().Patch(types.MergePatchType).Namespace(namespace).Resource(resource).Name(name).
		SetHeader(kubeapi.StoreAgain, "true").SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").
		Body([]byte(patch)).Do(t.Context()).Into(&is)
}

// atrest migrate asks for it. Nothing of the object changes, so that no admission is asked;
// all else that a patch may meet it meets.
func TestAnObjectIsStoredAgainAsItIs(t *testing.T) {
	t.Parallel()
	etcd := harness.Etcd(t)
	config := harness.NewConfigFile(t, harness.Entry("secrets, events", harness.Identity))
	spec := harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: config.Flags()}
	first := harness.Start(t, spec)
	writeSecret(t, first, "old", password)
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "old"}, InvolvedObject: corev1.ObjectReference{Namespace: namespace}}
	_, err := first.Kube.CoreV1().Events(namespace).Create(t.Context(), event, metav1.CreateOptions{})
	require.NoError(t, err)
	first.Kill()
	config.Write(harness.Entry("secrets, events", harness.StartPlugin(t).KMS("one"), harness.Identity))
	s := harness.Start(t, spec)
	was, err := s.Kube.CoreV1().Secrets(namespace).Get(t.Context(), "old", metav1.GetOptions{})
	require.NoError(t, err)
	denyUpdates(t, s)

	is, err := storeAgain(t, s.Kube, "secrets", "old", `{"metadata":{"labels":{"not":"wanted"}},"data":{"password":"b3RoZXI="}}`)
	require.NoError(t, err, "no admission is asked")
	require.NotEqual(t, was.ResourceVersion, is.ResourceVersion)
	sealedAt(t, etcd, secretKey("old"), "one", password)
	now, err := s.Kube.CoreV1().Secrets(namespace).Get(t.Context(), "old", metav1.GetOptions{})
	require.NoError(t, err)
	was.ResourceVersion = now.ResourceVersion
	require.Equal(t, was, now, "nothing else has changed, and nobody manages more of it")

	again, err := storeAgain(t, s.Kube, "secrets", "old", `{}`)
	require.NoError(t, err)
	require.Equal(t, is.ResourceVersion, again.ResourceVersion, "what is not stale is not stored")

	_, err = storeAgain(t, s.Kube, "secrets", "none", `{}`)
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	_, err = etcd.Get(t.Context(), secretKey("none"))
	require.Error(t, err, "nothing was made of nothing")

	nobody, err := kubernetes.NewForConfig(rest.AnonymousClientConfig(s.Config))
	require.NoError(t, err)
	_, err = storeAgain(t, nobody, "secrets", "old", `{}`)
	require.True(t, apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err), "%v", err)

	_, err = storeAgain(t, s.Kube, "events", "old", `{"reason":"patched"}`)
	require.NoError(t, err)
	patched, err := s.Kube.CoreV1().Events(namespace).Get(t.Context(), "old", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "patched", patched.Reason, "for what ends by itself it is a patch as any other")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}})
	require.NoError(t, err)
	defer client.Close()
	found, err := client.Get(t.Context(), "/registry/events/"+namespace+"/old")
	require.NoError(t, err)
	require.NotZero(t, found.Kvs[0].Lease, "and it still ends")
}

// denyUpdates has a policy deny any update of the Secret, and waits until it does.
func denyUpdates(t *testing.T, s *harness.Server) {
	t.Helper()
	fail, one := admissionv1.Fail, admissionv1.NamespacedScope
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}, Scope: &one},
	}}
	policies, name := s.Kube.AdmissionregistrationV1(), metav1.ObjectMeta{Name: "deny-updates"}
	_, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: name,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{FailurePolicy: &fail, Validations: []admissionv1.Validation{{Expression: "false"}},
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := s.Kube.CoreV1().Secrets(namespace).Patch(t.Context(), "old", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	}, time.Minute, 100*time.Millisecond)
	status, text := s.Get("/readyz")
	require.Equal(t, http.StatusOK, status, text)
}
