package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/local"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/healthz"
)

const statusPath = healthz.Path

func (f *faulty) state(t *testing.T) healthz.Status {
	t.Helper()
	status, text := f.Get(statusPath)
	require.Equal(t, http.StatusOK, status, text)
	var state healthz.Status
	require.NoError(t, json.Unmarshal([]byte(text), &state))
	return state
}

// provider is what the state tells of the plugin behind the provider of this name.
func (f *faulty) provider(t *testing.T, name string) healthz.Provider {
	t.Helper()
	all := f.state(t).Providers
	i := slices.IndexFunc(all, func(p healthz.Provider) bool { return slices.Contains(p.Names, name) })
	require.GreaterOrEqual(t, i, 0, "%s is in the state", name)
	return all[i]
}

// requireSameFacts holds what the state tells of the plugin that is written with to the
// text of the check.
func (f *faulty) requireSameFacts(t *testing.T, text string) {
	t.Helper()
	p := f.provider(t, "one")
	require.Equal(t, []any{healthz.Writes, healthz.NotReady, envelope.HashKeyID("1")}, []any{p.Role, p.State, p.KeyIDHash})
	require.Contains(t, text, fmt.Sprintf("kms provider %q (writes %s): not ready, %s since %s",
		p.Names[0], strings.Join(p.WritesFor, ", "), p.Problem, p.Since.UTC().Format(time.RFC3339)))
	require.Contains(t, text, p.Message)
	require.Contains(t, text, p.Endpoint)
}

func TestTheStateIsForThoseWhoMaySeeIt(t *testing.T) {
	t.Parallel()
	config := harness.NewConfigFile(t, harness.Entry("secrets", harness.StartPlugin(t).KMS("one")))
	server := harness.Start(t, harness.Spec{Program: kubeAPIServer, Etcd: harness.Etcd(t), Flags: config.Flags()})
	allowToSee(t, server, "auditor")

	as := func(user string) *rest.Config {
		c := rest.CopyConfig(server.Config)
		c.Impersonate = rest.ImpersonationConfig{UserName: user}
		return c
	}
	unknown := rest.CopyConfig(server.Config)
	unknown.BearerToken = "unknown"
	for who, c := range map[string]struct {
		config *rest.Config
		status int
	}{
		"the administrator": {server.Config, http.StatusOK},
		"an allowed user":   {as("auditor"), http.StatusOK},
		"another user":      {as("somebody"), http.StatusForbidden},
		"a wrong token":     {unknown, http.StatusUnauthorized},
		"nobody":            {rest.AnonymousClientConfig(server.Config), http.StatusForbidden},
	} {
		probe, err := local.NewProbe(c.config)
		require.NoError(t, err)
		until(t, who+" gets the answer", func() bool { // a role takes a moment to be known
			status, text, err := probe.Get(t.Context(), statusPath)
			require.NoError(t, err)
			require.Equal(t, status == http.StatusOK, strings.Contains(text, config.Path), who)
			return status == c.status
		})
	}
}

// allowToSee gives the user the right to read the state, and no other.
func allowToSee(t *testing.T, s *harness.Server, user string) {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "see-encryption"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{statusPath}}},
	}
	_, err := s.Kube.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	require.NoError(t, err)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	_, err = s.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)
}
