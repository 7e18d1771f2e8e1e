package audit_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/operate/audit"
)

func TestTheResourceIsReadOffTheEtcdKey(t *testing.T) {
	layout := audit.NewLayout("", nil)
	for key, want := range map[string]string{
		"/registry/secrets/default/db":                                           "secrets",
		"/registry/deployments/default/web":                                      "deployments.apps",
		"/registry/minions/node-1":                                               "nodes",
		"/registry/controllers/default/rc":                                       "replicationcontrollers",
		"/registry/services/specs/default/web":                                   "services",
		"/registry/services/endpoints/default/web":                               "endpoints",
		"/registry/ingress/default/web":                                          "ingresses.networking.k8s.io",
		"/registry/events/default/e.1":                                           "events",
		"/registry/ranges/serviceips":                                            "serviceipallocations",
		"/registry/ranges/servicenodeports":                                      "servicenodeportallocations",
		"/registry/masterleases/10.0.0.1":                                        "apiServerIPInfo",
		"/registry/clusterroles/system:node":                                     "clusterroles.rbac.authorization.k8s.io",
		"/registry/apiextensions.k8s.io/customresourcedefinitions/a.example.com": "customresourcedefinitions.apiextensions.k8s.io",
		"/registry/apiregistration.k8s.io/apiservices/v1.apps":                   "apiservices.apiregistration.k8s.io",
		"/registry/example.com/widgets/default/one":                              "widgets.example.com",
		"/registry/example.com/secrets/default/one":                              "secrets.example.com",
	} {
		got, known := layout.Resource(key)
		require.Equal(t, want, got.String(), key)
		require.True(t, known, key)
	}
}

func TestWhatNobodyKnowsIsTakenForTheCoreGroup(t *testing.T) {
	layout := audit.NewLayout("", nil)
	for key, want := range map[string]string{
		"/registry/gadgets/default/one": "gadgets",
		"/registry/gadgets":             "gadgets",
		"/registry/services/other/one":  "services",
		"/registry/example.com":         "example.com",
		"/registry/example.com/":        "example.com",
		"/registry/":                    "",
		"/registry//x":                  "",
	} {
		got, known := layout.Resource(key)
		require.Equal(t, schema.GroupResource{Resource: want}, got, key)
		require.False(t, known, key)
	}
}

func TestALayoutCanBeTold(t *testing.T) {
	told := map[string]schema.GroupResource{}
	for _, text := range []string{"oauth/accesstokens=oauthaccesstokens.oauth.openshift.io", "/routes/=routes.route.openshift.io", "secrets=secrets.example.com"} {
		path, r, err := audit.ParsePath(text)
		require.NoError(t, err)
		told[path] = r
	}
	layout := audit.NewLayout("/openshift.io/", told)
	for key, want := range map[string]string{
		"/openshift.io/oauth/accesstokens/sha256~x": "oauthaccesstokens.oauth.openshift.io",
		"/openshift.io/routes/default/web":          "routes.route.openshift.io",
		"/openshift.io/secrets/default/db":          "secrets.example.com",
		"/openshift.io/pods/default/web":            "pods",
	} {
		got, _ := layout.Resource(key)
		require.Equal(t, want, got.String(), key)
	}
	for _, text := range []string{"", "=", "path", "path=", "=secrets", "a/b/c=secrets"} {
		_, _, err := audit.ParsePath(text)
		require.ErrorContains(t, err, "write path=resource.group", text)
	}
}

func TestThePrefixMayEndInASlash(t *testing.T) {
	for _, prefix := range []string{"", "/registry", "/registry/", "/registry//"} {
		require.Equal(t, "/registry/", audit.NewLayout(prefix, nil).Prefix())
	}
}

func TestWhereAResourceIsIsWhatItIsReadOff(t *testing.T) {
	layout := audit.NewLayout("", nil)
	rapid.Check(t, func(t *rapid.T) {
		r := schema.ParseGroupResource(rapid.OneOf(
			rapid.SampledFrom([]string{"secrets", "nodes", "services", "endpoints", "ingresses.networking.k8s.io", "deployments.apps", "leases.coordination.k8s.io"}),
			rapid.StringMatching(`[a-z]{1,8}\.[a-z]{1,8}\.[a-z]{1,4}`),
			rapid.StringMatching(`[a-z]{1,8}`).Filter(func(s string) bool {
				_, known := layout.Resource("/registry/" + s + "/x")
				return !known
			}),
		).Draw(t, "resource"))
		got, _ := layout.Resource(layout.Places(r)[0] + "default/name")
		require.Equal(t, r, got)
	})
}

func TestAResourceMayHaveSeveralPlaces(t *testing.T) {
	l := audit.NewLayout("", map[string]schema.GroupResource{"old/things": {Group: "example.com", Resource: "things"}})
	for name, want := range map[string][]string{
		"secrets":              {"/registry/secrets/"},
		"nodes":                {"/registry/minions/"},
		"widgets.example.com":  {"/registry/example.com/widgets/"},
		"things.example.com":   {"/registry/old/things/"},
		"gadgets":              {"/registry/gadgets/"},
		"apiServerIPInfo":      {"/registry/masterleases/", "/registry/peerserverleases/"},
		"serviceipallocations": {"/registry/ranges/secondaryserviceips", "/registry/ranges/serviceips"},
	} {
		require.Equal(t, want, l.Places(schema.ParseGroupResource(name)), name)
	}
}

// Its kube-apiserver has one prefix, and the apiservers of its own APIs another.
func TestOpenShiftHasTwoPrefixes(t *testing.T) {
	l := audit.NewLayout("kubernetes.io", nil)
	require.Equal(t, "/kubernetes.io/", l.Prefix())
	require.Equal(t, "/openshift.io/", l.Beside())
	for key, want := range map[string]string{
		"/kubernetes.io/secrets/default/db":                           "secrets",
		"/kubernetes.io/configmaps/default/db":                        "configmaps",
		"/openshift.io/routes/default/web":                            "routes.route.openshift.io",
		"/openshift.io/oauth/accesstokens/sha256~x":                   "oauthaccesstokens.oauth.openshift.io",
		"/openshift.io/oauth/authorizetokens/sha256~x":                "oauthauthorizetokens.oauth.openshift.io",
		"/openshift.io/oauth/clients/console":                         "oauthclients.oauth.openshift.io",
		"/openshift.io/useridentities/htpasswd:a":                     "identities.user.openshift.io",
		"/kubernetes.io/security.openshift.io/securitycontexts/any":   "securitycontexts.security.openshift.io",
		"/kubernetes.io/route.openshift.io/routes/default/microshift": "routes.route.openshift.io",
	} {
		r, known := l.Resource(key)
		require.Equal(t, want, r.String(), key)
		require.True(t, known, key)
		require.True(t, slices.ContainsFunc(l.Places(r), func(place string) bool { return strings.HasPrefix(key, place) }), key)
	}
	r, known := l.Resource("/openshift.io/secrets/default/db")
	require.Equal(t, "secrets", r.String())
	require.False(t, known, "it stores none there")
	require.Equal(t, []string{"/kubernetes.io/secrets/"}, l.Places(r))
	require.Equal(t, []string{"/kubernetes.io/route.openshift.io/routes/", "/openshift.io/routes/"},
		l.Places(schema.ParseGroupResource("routes.route.openshift.io")), "MicroShift has them as a custom resource")
	require.NoError(t, l.Check(schema.ParseGroupResource("oauthaccesstokens.oauth.openshift.io")))
	require.Empty(t, audit.NewLayout("", nil).Beside())
	require.Empty(t, audit.NewLayout("/openshift.io", nil).Beside())
}
