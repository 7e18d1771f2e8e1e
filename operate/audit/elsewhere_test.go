package audit_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/audit"
)

const sealed = "k8s:enc:kms:v1:old:\x00\x02ab0123456789012345678901234567"

// Two apiservers may share an etcd and a key, and each its own prefix.
func TestTheWholeKeyspaceIsLookedThroughForWhatIsEncrypted(t *testing.T) {
	stored := memory{
		"/kubernetes.io/secrets/default/a":             []byte(sealed),
		"/kubernetes.io/pods/default/web":              []byte("{}"),
		"/openshift.io/oauth/accesstokens/sha256~x":    []byte(sealed),
		"/openshift.io/oauth/authorizetokens/sha256~x": []byte(sealed),
		"/openshift.io/routes/default/web":             []byte(sealed),
		"/openshift.io/images/sha256:x":                []byte("{}"),
		"/clusters/a/registry/configmaps/default/b":    []byte(sealed),
		"/registry/minions/node-1":                     []byte(sealed),
		"/registry/example.com/widgets/secrets/one":    []byte(sealed),
		"/vault/core/keyring":                          []byte(sealed),
		"compact_rev_key":                              []byte("7"),
		"/kubernetes.io":                               []byte("{}"),
	}
	r := run(t, stored, audit.Options{Layout: audit.NewLayout("/kubernetes.io", nil), Everywhere: true})
	counts := map[string]int64{}
	for _, resource := range r.Resources {
		counts[resource.Name] = resource.Objects
	}
	require.Equal(t, map[string]int64{
		"secrets": 1, "pods": 1, "oauthaccesstokens.oauth.openshift.io": 1, "oauthauthorizetokens.oauth.openshift.io": 1,
		"routes.route.openshift.io": 1, "images.image.openshift.io": 1, "configmaps": 1, "nodes": 1, "widgets.example.com": 1, "core": 1,
	}, counts)
	require.Equal(t, []string{"core"}, r.Guessed)
	require.Equal(t, []audit.Elsewhere{
		{Prefix: "/registry", Keys: 2, Encrypted: 2},
		{Prefix: "/clusters", Keys: 1, Encrypted: 1}, {Prefix: "/vault", Keys: 1, Encrypted: 1},
		{Prefix: "/kubernetes.io", Keys: 1}, {Prefix: "compact_rev_key", Keys: 1},
	}, r.Elsewhere)
	require.True(t, r.Everywhere)
	require.Equal(t, "/kubernetes.io/", r.Prefix)
	require.NoError(t, r.NotEmpty())

	r = run(t, stored, audit.Options{Layout: audit.NewLayout("openshift.io", nil)})
	require.Empty(t, r.Guessed)
	require.EqualValues(t, 4, r.Objects)
	resource(t, r, "routes.route.openshift.io")

	r = run(t, stored, audit.Options{Layout: audit.NewLayout("/kubernetes.io", nil)})
	require.EqualValues(t, 6, r.Objects)
	require.Equal(t, "/openshift.io/", r.Beside)
	require.Empty(t, r.Elsewhere)
	require.False(t, r.Everywhere)
}

// What is beside it clears nothing either: of kube-apiserver's own nothing was seen.
func TestWhatIsBesideAPrefixDoesNotMakeItFull(t *testing.T) {
	stored := memory{"/openshift.io/routes/default/web": []byte(sealed)}
	for _, everywhere := range []bool{false, true} {
		r := run(t, stored, audit.Options{Layout: audit.NewLayout("/kubernetes.io", nil), Everywhere: everywhere})
		require.EqualValues(t, 1, r.Objects)
		require.ErrorContains(t, r.NotEmpty(), "nothing at all is stored below /kubernetes.io/")
	}
}

// A wrong prefix clears nothing, though there are encrypted values beside it.
func TestOtherPrefixesDoNotMakeAnEmptyOneFull(t *testing.T) {
	stored := memory{"/kubernetes.io/secrets/default/a": []byte(sealed)}
	r := run(t, stored, audit.Options{Everywhere: true})
	require.EqualValues(t, 1, r.Objects)
	require.EqualError(t, r.NotEmpty(), "nothing at all is stored below /registry/: "+
		"name the etcd of the apiservers (it has keys below /kubernetes.io), and their --etcd-prefix with --prefix")
}

func TestPrefixesAreToldApartUpToALimit(t *testing.T) {
	stored := memory{}
	for i := range 100 {
		stored[fmt.Sprintf("/p%02d/secrets/a", i)] = []byte(sealed)
	}
	r := run(t, stored, audit.Options{Everywhere: true})
	require.Len(t, r.Elsewhere, 65)
	require.Equal(t, audit.Elsewhere{Prefix: audit.Rest, Keys: 36, Encrypted: 36}, r.Elsewhere[0])
	require.EqualValues(t, 100, resource(t, r, "secrets").Objects)
}
