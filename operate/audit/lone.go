package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/stored"
)

// lone is a key, or a plugin, of a configuration by itself.
type lone struct {
	kind   config.Kind
	name   string // that it has in the configuration
	opener *Opener
}

func (l lone) isKMS() bool { return l.kind == config.KMSv1 || l.kind == config.KMSv2 }

// ByItself opens an object with each key of the file and each plugin by itself, whatever it is
// called: a key keeps nothing but its name in what it sealed, and a plugin not even that. The name
// may be another's by now, whose padding may fit too. KMS providers that never had another name than
// theirs are asked for what is under that alone. It gives the plaintext and the name of what
// opens it. The error is that of all that were tried, as of [Opener.Anyhow], and nil with an empty
// name if there were none.
func (o *Opener) ByItself(ctx context.Context, r schema.GroupResource, object Object, never ...string) ([]byte, string, error) {
	form := Inspect(object.Value, o.names).Form
	i := slices.IndexFunc(stored.Formats[:], func(f stored.Format) bool { return config.Kind(f.Kind) == form.Kind })
	if i < 0 {
		return nil, "", nil
	}
	rest, ok := bytes.CutPrefix(object.Value, []byte(stored.Formats[i].Prefix+form.Name+":"))
	if !ok {
		return nil, "", nil
	}
	if err := o.part(); err != nil {
		return nil, "", err
	}
	var all []error
	for _, one := range o.lone {
		if one.kind != form.Kind || one.isKMS() && one.name != form.Name && slices.Contains(never, one.name) {
			continue
		}
		object.Value = slices.Concat([]byte(stored.Formats[i].Prefix+one.name+":"), rest)
		plaintext, err := one.opener.once(ctx, "", r, object)
		if err == nil {
			return plaintext, one.name, nil
		}
		all = append(all, fmt.Errorf("%s %q by itself: %w", one.kind, one.name, err))
	}
	return nil, "", errors.Join(all...)
}

// part makes an opener of each key and plugin.
func (o *Opener) part() (err error) {
	if o.lone != nil {
		return nil
	}
	all := []lone{}
	defer func() {
		if err != nil {
			closeAll(all)
		}
	}()
	for _, p := range o.transformers.Configuration().Providers() {
		for _, one := range lonesOf(p) {
			c, err := config.Parse(one.text(), config.Options{KMSv1: true})
			if err != nil {
				return err
			}
			opener, err := NewOpener(c)
			if err != nil {
				return err
			}
			all = append(all, lone{one.kind, one.name, opener})
		}
	}
	o.lone = all
	return nil
}

func closeAll(all []lone) {
	for _, one := range all {
		one.opener.Close()
	}
}

// provider is a lone one as a file has it.
type provider struct {
	kind config.Kind
	name string
	is   map[string]any
}

func lonesOf(p *config.Provider) (all []provider) {
	if kms := p.KMS(); kms.Name != "" {
		version := map[config.Kind]string{config.KMSv1: "v1", config.KMSv2: "v2"}[p.Kind()]
		return []provider{{p.Kind(), kms.Name, map[string]any{"kms": map[string]any{"apiVersion": version, "name": kms.Name, "endpoint": kms.Endpoint, "timeout": kms.Timeout.String()}}}}
	}
	for _, key := range p.Keys() {
		all = append(all, provider{p.Kind(), key.Name, map[string]any{string(p.Kind()): map[string]any{"keys": []any{map[string]any{"name": key.Name, "secret": key.Secret()}}}}})
	}
	return all
}

// text is a configuration of nothing else.
func (p provider) text() []byte {
	text, _ := json.Marshal(map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", // never fails
		"resources": []any{map[string]any{"resources": []string{"*.*"}, "providers": []any{p.is}}}})
	return text
}
