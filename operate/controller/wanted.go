package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/keys"
)

// Named finds what an EncryptionAtRest names, as it is by now. Its errors, as of what is not there,
// are passed on.
type Named interface {
	// Data is the content of a Secret or a ConfigMap in the namespace of the controller. It is not
	// changed.
	Data(source bundle.Source, name string) (map[string][]byte, error)
	VaultKMSConfig(name string) (*v1alpha1.VaultKMSConfig, error)
}

// Wanted is what an object says, with what it names. It is all of it or an error, which names every
// object and data key that is missing, so that what runs goes on as it is. What is invalid is an error
// too, of whoever let it through. The object is not changed, and no error has any data of a Secret.
func Wanted(o *v1alpha1.EncryptionAtRest, named Named) (keys.Desired, error) {
	o = o.DeepCopy()
	o.Default()
	if err := o.Validate().ToAggregate(); err != nil {
		return keys.Desired{}, fmt.Errorf("EncryptionAtRest %q: %w", o.Name, err)
	}
	d := keys.Desired{Mode: keys.Mode(o.Spec.Encryption.EffectiveType()), Strict: o.Spec.Strict, Retry: o.Spec.Retry}
	for _, r := range o.Spec.Resources {
		d.Resources = append(d.Resources, string(r))
	}
	if r := o.Spec.Renewal; r != nil {
		d.External, d.Renew = r.Reason, durationOf(r.After)
	}
	if d.Mode != keys.KMS {
		return d, nil
	}
	p, err := plugin(o.Spec.Encryption.KMS, named)
	if err != nil {
		return keys.Desired{}, err
	}
	d.Plugin = p
	return d, nil
}

// plugin is the plugin of a KMS, with the content of each file that it needs and of no other.
func plugin(k *v1alpha1.KMS, named Named) (*keys.Plugin, error) {
	k, err := resolved(k, named)
	if err != nil {
		return nil, err
	}
	settings := settingsOf(k)
	p := &keys.Plugin{Parts: map[bundle.Part][]byte{}, Timeout: durationOf(k.Timeout)}
	if p.Settings, err = json.Marshal(settings); err != nil {
		return nil, err
	}
	read := map[bundle.Part]object{} // each object once: its data keys belong together
	var missing []error
	for _, part := range settings.Parts() {
		of := bundle.Part{Source: part.Source, Name: part.Name}
		if _, had := read[of]; !had {
			data, err := named.Data(part.Source, part.Name)
			read[of] = object{data, err}
		}
		content, err := read[of].content(part)
		missing = append(missing, err)
		p.Parts[part] = content
	}
	if err := errors.Join(missing...); err != nil {
		return nil, err
	}
	return p, nil
}

// object is the content of a Secret or a ConfigMap, or why it has none.
type object struct {
	data map[string][]byte
	err  error
}

func (o object) content(part bundle.Part) ([]byte, error) {
	switch content := o.data[part.Key]; {
	case o.err != nil:
		return nil, fmt.Errorf("%s: %w", part, o.err)
	case len(content) == 0:
		return nil, fmt.Errorf("%s: %w", part, ErrNoData)
	default:
		return content, nil
	}
}

// ErrNoData is of a Secret or a ConfigMap that has nothing under a data key that a plugin needs.
var ErrNoData = errors.New("there is nothing under that key: put it there")

// resolved is a KMS with the settings of the object that its pluginConfig names, if it has one.
func resolved(k *v1alpha1.KMS, named Named) (*v1alpha1.KMS, error) {
	ref := k.PluginConfig
	if ref == nil {
		return k, nil
	}
	if ref.APIVersion != v1alpha1.GroupVersion.String() || ref.Resource != v1alpha1.VaultKMSConfigResource {
		return nil, fmt.Errorf("pluginConfig names a resource %q of %q, and nothing is known of that: name one of %q of %q",
			ref.Resource, ref.APIVersion, v1alpha1.VaultKMSConfigResource, v1alpha1.GroupVersion)
	}
	config, err := named.VaultKMSConfig(ref.Name)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", v1alpha1.VaultKMSConfigKind, ref.Name, err)
	}
	config = config.DeepCopy()
	if image := config.Status.KMSPluginImage; image != "" { // whoever provides the plugin has chosen it
		config.Spec.KMSPluginImage = image
	}
	if err := config.Validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("%s %q: %w", v1alpha1.VaultKMSConfigKind, ref.Name, err)
	}
	return &v1alpha1.KMS{Type: v1alpha1.VaultProvider, Timeout: k.Timeout, Vault: &config.Spec}, nil
}

// durationOf is a time of an object that was validated; 0 if there is none.
func durationOf(d v1alpha1.Duration) time.Duration {
	t, err := time.ParseDuration(string(d))
	if err != nil {
		return 0
	}
	return t
}
