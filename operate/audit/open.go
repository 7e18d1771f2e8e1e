package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/providers"
)

// Opener opens stored objects with the providers of a configuration, as an
// apiserver does, and writes nothing. It is for one goroutine; close it.
//
// A plugin that is away or refuses three times in a row is not asked for further DEKs, so
// that one which does not answer cannot hold up a walk by its timeout for each
// object. That a key is disabled says nothing of others, and does not count.
type Opener struct {
	transformers *providers.Transformers
	chains       map[schema.GroupResource]value.Transformer
	deks         map[uint64]error // what became of the DEKs of KMS providers
	failures     map[string]int   // in a row, by the name of the KMS provider
	seed         maphash.Seed
	names        Names
	lone         []lone // nil until they are first needed, and then all are there
}

// maxRemembered bounds the DEKs and chains that an Opener remembers.
const maxRemembered = 1 << 16

// maxFailures is after how many failures in a row a plugin is given up.
const maxFailures = 3

// NewOpener builds the providers of a configuration and does not take them into
// use: they read, and no plugin is asked for its Status or to Encrypt.
func NewOpener(c *config.Configuration) (*Opener, error) {
	transformers, err := providers.Build(c, providers.Options{})
	if err != nil {
		return nil, err
	}
	return &Opener{
		transformers: transformers, chains: map[schema.GroupResource]value.Transformer{},
		deks: map[uint64]error{}, failures: map[string]int{}, seed: maphash.MakeSeed(), names: NamesIn(c),
	}, nil
}

// Close ends the connections to all plugins.
func (o *Opener) Close() {
	o.transformers.Close()
	closeAll(o.lone)
}

// Open reports whether an apiserver with this configuration could read an object.
// The error is that of the resource's [transformer.Chain]. What only another apiserver's
// configuration tells of, as [Count].Beside has it, is [ErrNotTried].
func (o *Opener) Open(ctx context.Context, r schema.GroupResource, object Object) error {
	if o.others(r, object) {
		return ErrNotTried
	}
	_, err := o.once(ctx, "", r, object)
	return err
}

// once is Plaintext, but for DEKs and plugins of which the answer is known. It is
// remembered under a scope: another rule may have another plugin of the same name.
func (o *Opener) once(ctx context.Context, scope string, r schema.GroupResource, object Object) ([]byte, error) {
	i := Inspect(object.Value, nil)
	if len(i.WrappedDEK) == 0 {
		return o.Plaintext(ctx, r, object)
	}
	provider := scope + string(i.Form.Kind) + ":" + i.Form.Name
	dek := maphash.String(o.seed, provider+":"+string(i.WrappedDEK))
	before, seen := o.deks[dek]
	switch {
	case seen && before != nil:
		return nil, fmt.Errorf("as another object under the same DEK: %w", before)
	case !seen && o.failures[provider] >= maxFailures:
		return nil, fmt.Errorf("%w: %w, as %s failed %d times in a row: look at its plugin and at the KMS",
			envelope.ErrUnavailable, ErrNotAsked, i.Form, maxFailures)
	}
	plaintext, err := o.Plaintext(ctx, r, object)
	o.learn(provider, dek, err)
	return plaintext, err
}

// DoesNotOpen reports whether an error of [Opener.Open] says that the object does not open with
// what was asked, and not that this was not seen, as of a plugin that is away.
func DoesNotOpen(err error) bool {
	return errors.Is(err, envelope.ErrCorrupt) || errors.Is(err, envelope.ErrUnknownKEK)
}

// ErrNotAsked says that a plugin was given up before it was asked for an object.
var ErrNotAsked = errors.New("not asked again")

// ErrNotTried says that nobody tried to open an object.
var ErrNotTried = errors.New("not tried")

// OpenLocal is Open without any plugin: what is stored with KMS is [ErrNotTried].
func (o *Opener) OpenLocal(ctx context.Context, r schema.GroupResource, object Object) error {
	if i := Inspect(object.Value, nil); len(i.WrappedDEK) > 0 || o.others(r, object) {
		return ErrNotTried
	}
	_, err := o.Plaintext(ctx, r, object)
	return err
}

func (o *Opener) others(r schema.GroupResource, object Object) bool {
	return object.beside && stored.IsEncrypted(object.Value) && o.transformers.Configuration().For(r) == nil
}

// learn notes whether the plugin of a provider unwrapped a DEK.
func (o *Opener) learn(provider string, dek uint64, err error) {
	away := errors.Is(err, envelope.ErrUnavailable)
	code := status.Code(err)
	plain := code == codes.Unknown || code == codes.FailedPrecondition // as of a version that is withheld
	if away && (!plain || errors.Is(err, context.DeadlineExceeded)) {
		o.failures[provider]++
	} else { // it answers, if only with an error of its own
		o.failures[provider] = 0
	}
	if !away && !errors.Is(err, envelope.ErrUnknownKEK) && !errors.Is(err, envelope.ErrForeignDEK) {
		err = nil // of the object, not of the DEK
	}
	if len(o.deks) < maxRemembered {
		o.deks[dek] = err
	}
}

// Plaintext is what an apiserver with this configuration would read. The caller
// must not change it: under identity it is the object's own value. aescbc opens one value
// of 256 with a key that it is not under, as nothing but its padding tells. So what it
// opens is to be an object of Kubernetes, and is an [envelope.ErrCorrupt] if it is not.
func (o *Opener) Plaintext(ctx context.Context, r schema.GroupResource, object Object) ([]byte, error) {
	chain, ok := o.chains[r]
	if !ok {
		chain = o.transformers.TransformerForResource(r)
		if len(o.chains) < maxRemembered {
			o.chains[r] = chain
		}
	}
	plaintext, _, err := chain.TransformFromStorage(ctx, object.Value, value.DefaultContext(object.Key))
	if err == nil && bytes.HasPrefix(object.Value, []byte(stored.AESCBC.Prefix)) && !isObject(plaintext) {
		return nil, fmt.Errorf("%s: %w: what comes out is no object of Kubernetes", r, envelope.ErrCorrupt)
	}
	return plaintext, err
}

// Recover opens an object by all means: with the providers of its resource, else
// with those of every other rule. It tells of which resource they were. If that
// is not r, apiservers with this configuration cannot read the object. The error
// is that of the resource's own providers.
func (o *Opener) Recover(ctx context.Context, r schema.GroupResource, object Object) ([]byte, schema.GroupResource, error) {
	plaintext, err := o.Plaintext(ctx, r, object)
	if err == nil {
		return plaintext, r, nil
	}
	for _, rule := range o.transformers.Configuration().Rules() {
		if !encrypts(rule) {
			continue
		}
		if plaintext, err := o.Plaintext(ctx, rule.Resource, object); err == nil {
			return plaintext, rule.Resource, nil
		}
	}
	return nil, r, err
}

// Anyhow is Recover for many objects: it asks a plugin that fails as seldom as Open
// does. The error is that of all providers that were tried, so that it wraps
// [envelope.ErrUnavailable] if one of them was a plugin that may know the key, or
// [ErrNotTried] as that of Open.
func (o *Opener) Anyhow(ctx context.Context, r schema.GroupResource, object Object) ([]byte, schema.GroupResource, error) {
	if o.others(r, object) {
		return nil, r, ErrNotTried
	}
	plaintext, err := o.once(ctx, "", r, object)
	if err == nil {
		return plaintext, r, nil
	}
	all := []error{err}
	for _, rule := range o.transformers.Configuration().Rules() {
		if !encrypts(rule) || rule.Resource == r {
			continue
		}
		plaintext, err := o.once(ctx, rule.Resource.String()+" ", rule.Resource, object)
		if err == nil {
			return plaintext, rule.Resource, nil
		}
		all = append(all, err)
	}
	return nil, r, errors.Join(all...)
}

func encrypts(r config.Rule) bool {
	return slices.ContainsFunc(r.Providers, func(p *config.Provider) bool { return p.Kind() != config.Identity })
}
