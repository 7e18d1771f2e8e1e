package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
)

func TestWhatIsNoResourceIsRefusedWithTheOneThatWasMeant(t *testing.T) {
	layout := audit.NewLayout("", map[string]schema.GroupResource{"gadgets": {Resource: "gadgets"}})
	for name, meant := range map[string]string{
		"secret":                               `"secrets" is`,
		"Secret":                               `"secrets" is`,
		"deployments":                          `"deployments.apps" is`,
		"deployment.app":                       `"deployments.apps" is`,
		"secrets.core":                         `"secrets" is`,
		"ingress":                              `"ingresses.networking.k8s.io" is`,
		"networkpolicy":                        `"networkpolicies.networking.k8s.io" is`,
		"routes":                               `"routes.route.openshift.io" is`,
		"widgets":                              "write resource.group, in the plural",
		"":                                     "write resource.group",
		"secrets.":                             "",
		"secrets":                              "",
		"deployments.apps":                     "",
		"gadgets":                              "",
		"apiServerIPInfo":                      "",
		"widgets.example.com":                  "",
		"ingresses.networking.k8s.io":          "",
		"oauthaccesstokens.oauth.openshift.io": "",
		"serviceipallocations":                 "",
	} {
		err := layout.Check(schema.ParseGroupResource(name))
		if meant == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, "is no resource of Kubernetes: "+meant, name)
	}
}
