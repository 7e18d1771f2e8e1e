package config

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FuzzParse gives any bytes to Parse and to kube-apiserver's decoder and
// validation. They agree but for what Parse documents, and neither what is
// accepted nor what is refused ends in a panic.
func FuzzParse(f *testing.F) {
	for _, file := range files(f, "testdata/*/*.*") {
		f.Add(read(f, file), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, reload bool) {
		c, err := agree(t, data, reload)
		if err != nil {
			_ = err.Error()
			return
		}
		for _, rule := range c.Rules() {
			if len(c.For(rule.Resource)) == 0 {
				t.Fatalf("%v has a rule and no provider", rule.Resource)
			}
		}
		c.Unserved(func(schema.GroupResource) bool { return false })
	})
}
