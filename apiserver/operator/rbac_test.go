package operator

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// right is a rule for one verb, and of one resource or path.
type right struct {
	role      string // that has it
	namespace string // of the role, empty for a ClusterRole
	rule      rbacv1.PolicyRule
}

func (r right) String() string {
	return strings.Join(r.rule.Verbs, "") + " " + strings.Join(r.rule.Resources, "") + strings.Join(r.rule.NonResourceURLs, "") + " of " + r.role
}

// said is what a command says that lacks it.
func (r right) said() *regexp.Regexp {
	if len(r.rule.NonResourceURLs) > 0 {
		return regexp.MustCompile(regexp.QuoteMeta(strings.TrimSuffix(r.rule.NonResourceURLs[0], "*")) + `\S*: 403 Forbidden: the user needs the verb get`)
	}
	verb, resource := r.rule.Verbs[0], regexp.QuoteMeta(r.rule.Resources[0])
	if r.rule.Resources[0] == "*" {
		resource = `[a-z]+`
	}
	return regexp.MustCompile(`cannot ` + verb + ` resource "` + resource + `"|may not ` + verb + ` ` + resource)
}

// published are the rights that docs/rbac.yaml gives, one by one. Each of its bindings is
// to one of its roles.
func published(t *testing.T) []right {
	t.Helper()
	file, err := os.Open("../../docs/rbac.yaml")
	require.NoError(t, err)
	defer file.Close()
	var all []right
	roles, bound := map[string]bool{}, 0
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var document struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Rules             []rbacv1.PolicyRule `json:"rules"`
			RoleRef           rbacv1.RoleRef      `json:"roleRef"`
		}
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if strings.HasSuffix(document.Kind, "Binding") {
			bound++
			require.True(t, roles[document.RoleRef.Kind+document.Namespace+document.RoleRef.Name], document.Name)
			continue
		}
		roles[document.Kind+document.Namespace+document.Name] = true
		for _, rule := range document.Rules {
			for _, one := range each(rule) {
				all = append(all, right{document.Name, document.Namespace, one})
			}
		}
	}
	require.NotEmpty(t, all)
	require.Equal(t, len(roles)-2, bound, "all but the migrator's, and that by which objects are deleted")
	return all
}

func each(rule rbacv1.PolicyRule) (all []rbacv1.PolicyRule) {
	for _, verb := range rule.Verbs {
		for _, resource := range rule.Resources {
			all = append(all, rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{resource}, Verbs: []string{verb}})
		}
		for _, path := range rule.NonResourceURLs {
			all = append(all, rbacv1.PolicyRule{NonResourceURLs: []string{path}, Verbs: []string{verb}})
		}
	}
	return all
}

// guarded are two kube-apiservers, the one Kubernetes' own and the other of this project,
// on an etcd with a Secret in plaintext that is to be encrypted.
type guarded struct {
	cluster
	t             *testing.T
	first, second *harness.Server
	file          *harness.ConfigFile
	atrest        func(want int, args ...string) (stdout, stderr string)
	users         int
}

// startGuarded starts them; more is for the first one.
func startGuarded(t *testing.T, more ...string) *guarded {
	c := start(t)
	file := harness.NewConfigFile(t, harness.Entry("secrets, configmaps", harness.Plugin{Plugin: c.plugin}.KMS("keyfile"), harness.Identity))
	g := &guarded{cluster: c, t: t, file: file, atrest: command(t)}
	flags := append(file.Flags(), migrationFlags()...)
	g.first = harness.Launch(t, harness.Spec{Program: harness.StockServer, Host: "first", Etcd: c, Flags: append(slices.Clone(flags), more...)})
	g.second = harness.Launch(t, harness.Spec{Program: harness.HurriedServer, Host: "second", Etcd: c, Flags: flags})
	g.first.WaitFor("/readyz")
	g.second.WaitFor("/readyz")
	return g
}

// user is a new one with some rights, as a kubeconfig. It returns once every apiserver
// knows of them.
func (g *guarded) user(rights []right) (kubeconfig string) {
	t := g.t
	t.Helper()
	g.users++
	name := fmt.Sprintf("user-%d", g.users)
	subject := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	for namespace, rules := range byNamespace(rights) {
		meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
		api, err := g.first.Kube.RbacV1(), error(nil)
		if namespace == "" {
			_, err = api.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
			require.NoError(t, err)
			_, err = api.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subject,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}, metav1.CreateOptions{})
		} else {
			_, err = api.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
			require.NoError(t, err)
			_, err = api.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subject,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}}, metav1.CreateOptions{})
		}
		require.NoError(t, err)
	}
	for _, server := range []*harness.Server{g.first, g.second} {
		for _, r := range rights {
			require.Eventually(t, func() bool { return g.may(server, name, r) }, time.Minute, 20*time.Millisecond, "%s", r)
		}
	}
	return g.kubeconfig(name)
}

func byNamespace(rights []right) map[string][]rbacv1.PolicyRule {
	by := map[string][]rbacv1.PolicyRule{}
	for _, r := range rights {
		by[r.namespace] = append(by[r.namespace], r.rule)
	}
	return by
}

// may asks an apiserver as its administrator.
func (g *guarded) may(server *harness.Server, user string, r right) bool {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: []string{"system:authenticated"}}}
	if len(r.rule.NonResourceURLs) > 0 {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: r.rule.Verbs[0], Path: strings.Replace(r.rule.NonResourceURLs[0], "*", "x", 1)}
	} else {
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: r.rule.Verbs[0], Group: r.rule.APIGroups[0], Resource: r.rule.Resources[0], Namespace: r.namespace}
	}
	told, err := server.Kube.AuthorizationV1().SubjectAccessReviews().Create(g.t.Context(), review, metav1.CreateOptions{})
	require.NoError(g.t, err)
	return told.Status.Allowed
}

func (g *guarded) kubeconfig(user string) string {
	k := clientcmdapi.NewConfig()
	for name, c := range map[string]*rest.Config{"first": g.first.Config, "second": g.second.Config} {
		k.Clusters[name] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData, CertificateAuthority: c.CAFile}
		k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: c.BearerToken, Impersonate: user}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	k.CurrentContext = "first"
	path := filepath.Join(g.t.TempDir(), "kubeconfig")
	require.NoError(g.t, clientcmd.WriteToFile(*k, path))
	return path
}

// run is a command as a user, with something to do for it.
func (g *guarded) run(want int, verb string, rights []right) string {
	g.t.Helper()
	for _, kind := range []string{"secrets", "configmaps"} { // left by one that could not delete them
		for _, name := range []string{"first", "second"} {
			_, err := g.Client().Delete(g.t.Context(), "/registry/"+kind+"/kube-system/atrest-canary-"+name)
			require.NoError(g.t, err)
		}
	}
	_, err := g.Client().Put(g.t.Context(), "/registry/secrets/default/plain", string(secret(g.t, "default", "plain")))
	require.NoError(g.t, err)
	all := []string{"--apiservers", "first,second", "--endpoints", g.Endpoint(), "--rate", "0"}
	args := map[string][]string{
		"migrate":  append([]string{"migrate", "--config", g.file.Path}, all...),
		"delegate": append([]string{"migrate", "--storage-version-migrations", "--take-up", "1s", "--config", g.file.Path}, all...),
		"sweep":    {"migrate", "--without-etcd", "--resource", "secrets"},
		"kept":     {"migrate", "--without-etcd", "--resource", "secrets", "--state", g.t.TempDir(), "--goal", "kept"},
		"rotate":   append([]string{"rotate", "one-plugin", "--provider", "keyfile", "--config", g.file.Path, "--state", g.t.TempDir(), "--plan"}, all...),
		"retire":   append([]string{"retire", "nothing", "--key-id"}, all...),
		"join":     append([]string{"check", g.file.Path, "--join"}, all...),
		"status":   {"status", "--apiservers", "first,second"},
	}[verb]
	stdout, stderr := g.atrest(want, append(args, "--kubeconfig", g.user(rights))...)
	return stdout + stderr
}

// parts are the roles for each command, as the head of the file says.
var parts = map[string][]string{
	"migrate":  {"atrest:apiservers", "atrest:rewrite", "atrest"},
	"rotate":   {"atrest:apiservers", "atrest:rewrite", "atrest"},
	"delegate": {"atrest:apiservers", "atrest:rewrite", "atrest", "atrest:migrator"},
	"sweep":    {"atrest:rewrite"},
	"kept":     {"atrest:rewrite", "atrest"},
	"retire":   {"atrest:apiservers", "atrest:everything", "atrest"},
	"join":     {"atrest:apiservers", "atrest:rewrite", "atrest"},
	"status":   {"atrest:apiservers", "atrest"},
	"lost":     {"atrest:apiservers", "atrest:remove", "atrest:everything", "atrest"},
}

// of are the rights that a command has to have.
func of(verb string, all []right) (rights []right) {
	for _, r := range all {
		if slices.Contains([]string{"join", "kept", "status"}, verb) && r.role == "atrest" && slices.Contains([]string{"secrets", "configmaps"}, r.rule.Resources[0]) {
			continue // it writes no canaries
		}
		for _, part := range parts[verb] {
			if r.role == part {
				rights = append(rights, r)
			}
		}
	}
	return rights
}

// noticing is a command that cannot do without a right. Where two roles give the same,
// as for Secrets in kube-system, it is one that has one of them alone.
func noticing(r right) string {
	switch {
	case r.role == "atrest:rewrite", r.rule.Verbs[0] == "list" && r.role == "atrest":
		return "rotate"
	}
	switch r.role {
	case "atrest:everything":
		return "retire"
	case "atrest:migrator":
		return "delegate"
	case "atrest":
		return "retire"
	}
	return "migrate"
}

// With what docs/rbac.yaml gives each command works, and with one verb less it says which
// one is missing.
func TestThePublishedRightsAreWhatTheCommandsNeed(t *testing.T) {
	t.Parallel()
	all := published(t)
	g := startGuarded(t)
	for verb, want := range map[string]struct {
		code int
		says string
	}{
		"migrate": {0, "nothing is left"}, "sweep": {0, "nothing was proved"}, "kept": {0, "nothing was proved"}, "rotate": {0, "rewrite the objects"},
		"retire": {0, "yes, key_id"}, "join": {0, "may join: first, second"}, "status": {0, "All 2 apiservers agree and are well"}, "delegate": {1, "no controller took it up"},
	} {
		said := g.run(-1, verb, of(verb, all))
		require.Contains(t, said, want.says, verb)
		require.NotRegexp(t, `[Ff]orbidden|may not (get|list|create|patch|delete)|cannot (get|list|create|patch|delete)`, said, verb)
	}
	for _, missing := range all {
		if missing.role == "atrest:remove" {
			continue // see TestWhatIsLostIsDeleted
		}
		if missing.role == "atrest:migrator" {
			g.leaveMigration()
		}
		verb := noticing(missing)
		var rest []right
		for _, r := range of(verb, all) {
			if r.String() != missing.String() {
				rest = append(rest, r)
			}
		}
		require.Len(t, rest, len(of(verb, all))-1)
		require.Regexp(t, missing.said(), g.run(-1, verb, rest), "%s: without %s", verb, missing)
	}

	require.NoError(t, g.plugin.Rotate(t.Context()))
	out, _ := g.atrest(0, "rotate", "one-plugin", "--provider", "keyfile", "--config", g.file.Path, "--state", t.TempDir(), "--endpoints", g.Endpoint(), "--rate", "0",
		"--apiservers", "second", "--without-apiservers", "first", "--context", "second", "--hold", "1s", "--interval", "200ms", "--timeout", "2m",
		"--kubeconfig", g.user(of("rotate", all)))
	require.Contains(t, out, "finished: ", "and not only the plan")
}

// leaveMigration leaves one for something else, which has to be deleted.
func (g *guarded) leaveMigration() {
	g.t.Helper()
	migrations := g.first.Dynamic.Resource(schema.GroupVersionResource{Group: "storagemigration.k8s.io", Version: "v1beta1", Resource: "storageversionmigrations"})
	const name = "encryption-migration-core-secrets"
	_ = migrations.Delete(g.t.Context(), name, metav1.DeleteOptions{}) // there may be none
	_, err := migrations.Create(g.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"resource": map[string]any{"group": "", "resource": "secrets"}},
	}}, metav1.CreateOptions{})
	require.NoError(g.t, err)
}
