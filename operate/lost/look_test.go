package lost

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/operate/audit"
)

func TestWhyAnObjectIsLost(t *testing.T) {
	l := &Look{names: audit.Names{config.AESCBC: {"there"}}}
	aescbc, gone := audit.Form{Kind: config.AESCBC, Name: "there"}, audit.Form{Kind: config.AESCBC, Name: "gone"}
	away := fmt.Errorf("secrets: %w: it is off", envelope.ErrUnavailable)
	for name, c := range map[string]struct {
		form audit.Form
		came outcome
		is   Reason
	}{
		"it opens":                                   {aescbc, outcome{plaintext: []byte("{}")}, ""},
		"it opens under another name":                {gone, outcome{err: errors.New("no provider"), as: "there"}, ""},
		"plain, and without identity":                {audit.Form{Kind: audit.Plaintext}, outcome{err: errors.New("no provider")}, ""},
		"the key is not there":                       {gone, outcome{err: errors.New("no provider")}, NoKey},
		"the key is there and nobody knows":          {aescbc, outcome{err: errors.New("no provider")}, isUnknown},
		"another key":                                {aescbc, outcome{err: fmt.Errorf("x: %w", envelope.ErrCorrupt)}, Damaged},
		"the plugin has no such key":                 {gone, outcome{err: fmt.Errorf("x: %w", envelope.ErrUnknownKEK)}, UnknownKey},
		"the plugin did not seal it":                 {gone, outcome{err: fmt.Errorf("x: %w", envelope.ErrForeignDEK)}, UnknownKey},
		"the plugin is away":                         {gone, outcome{err: away}, isUnknown},
		"one plugin is away and another has no such": {gone, outcome{err: errors.Join(envelope.ErrUnknownKEK, away, envelope.ErrCorrupt)}, isUnknown},
		"a later form":                               {audit.Form{Kind: audit.Unknown}, outcome{}, isUnknown},
		"cut off":                                    {audit.Form{Kind: audit.Undecodable}, outcome{}, Damaged},
	} {
		why, is := l.judge(c.form, c.came)
		require.Equal(t, c.is, is, name)
		require.Equal(t, is == isUnknown, why != "", name)
	}
}

func TestTheObjectOfAnEtcdKey(t *testing.T) {
	l := audit.NewLayout("", map[string]schema.GroupResource{"odd/things": {Group: "example.com", Resource: "things"}})
	for key, want := range map[string]Object{
		"/registry/secrets/shop/db":              {Resource: "secrets", Namespace: "shop", Name: "db"},
		"/registry/minions/node-1":               {Resource: "nodes", Name: "node-1"},
		"/registry/services/specs/shop/web":      {Resource: "services", Namespace: "shop", Name: "web"},
		"/registry/services/endpoints/shop/web":  {Resource: "endpoints", Namespace: "shop", Name: "web"},
		"/registry/example.com/widgets/shop/one": {Resource: "widgets.example.com", Namespace: "shop", Name: "one"},
		"/registry/example.com/widgets/one":      {Resource: "widgets.example.com", Name: "one"},
		"/registry/odd/things/shop/one":          {Resource: "things.example.com", Namespace: "shop", Name: "one"},
		"/registry/ranges/serviceips":            {Resource: "serviceipallocations", Name: "/registry/ranges/serviceips"},
		"/registry/masterleases/10.0.0.1":        {Resource: "apiServerIPInfo", Name: "10.0.0.1"},
	} {
		want.Key = key
		require.Equal(t, want, objectAt(l, key), key)
	}
}
