package fleet

import "time"

// DefaultMetricsTimeout bounds the answer of one apiserver with all its metrics.
const DefaultMetricsTimeout = 30 * time.Second

// Option changes what a Fleet does.
type Option func(*Fleet)

// CanariesIn has canaries live in a namespace that is there, instead of
// kube-system.
func CanariesIn(namespace string) Option {
	return func(f *Fleet) { f.namespace = namespace }
}

// AskingPlugins has each apiserver of this project ask its plugins whenever it is
// observed, so that it knows of a new key_id then, and not a minute later. It
// takes the verb post for the nonResourceURL /debug/encryption/ask. An apiserver
// that refuses it, or is older, tells what it knows, and is not tried again.
func AskingPlugins() Option { return func(f *Fleet) { f.fresh = true } }

// SeparateServers has members taken for apiservers of their own though they tell
// one identity ([rotation.Instance.Server]), which kube-apiserver makes of the name
// of its host alone.
func SeparateServers(names ...string) Option {
	return func(f *Fleet) {
		for _, name := range names {
			f.separate[name] = true
		}
	}
}

// MetricsTimeout bounds the answer of one apiserver with all its metrics, instead
// of [DefaultMetricsTimeout], unless the timeout of its Config is shorter.
func MetricsTimeout(d time.Duration) Option { return func(f *Fleet) { f.metrics = d } }
