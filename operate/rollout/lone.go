package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/preflight"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// decrypts asks the plugin that is to be written with to encrypt and decrypt, if there
// is one apiserver alone: kube-apiserver has what it wrote in memory, and another one,
// that would have to ask the plugin, is not there.
func (r *Rotation) decrypts(ctx context.Context, found configurations) error {
	if len(r.Apiservers) != 1 || r.Checked {
		return nil
	}
	apiserver := r.Apiservers[0]
	c, names, err := r.Kind.last(apiserver, found)
	if err != nil { // the file is none of a rotation that has begun, which is waited for
		return nil
	}
	for _, result := range preflight.Check(ctx, c, preflight.Options{}) {
		asked := slices.ContainsFunc(result.Names, func(name string) bool { return slices.Contains(names, name) })
		if asked && result.Failure != nil {
			return fmt.Errorf("there is one apiserver alone, so nobody reads what it writes, and the plugin of %s cannot be seen to decrypt from here: %w: "+
				"run this on the machine of %s, or run atrest check there and say --plugin-checked", quoted(result.Names), result.Failure, apiserver)
		}
	}
	return nil
}

// last is the configuration at the end, and the providers that it is written with.
func (k TwoPlugins) last(apiserver string, found configurations) (*config.Configuration, []string, error) {
	file, c := found.files[apiserver], found.parsed[apiserver]
	if isLast(file, k.Changes(apiserver)) {
		return c, k.To, nil
	}
	before, err := beforeOf(file, k.Changes(apiserver))
	if err != nil {
		return nil, nil, err
	}
	next, err := edit.Advance(before, rotation.Before, rotation.Removed, k.Changes(apiserver)...)
	if err != nil {
		return nil, nil, err
	}
	c, err = config.Parse(next, config.Options{KMSv1: true, Reload: true})
	return c, k.To, err
}

func (k OnePlugin) last(apiserver string, found configurations) (*config.Configuration, []string, error) {
	return found.parsed[apiserver], k.Providers, nil
}
