package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/rollout"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// move is the rotation from whatever writes to what is to write.
type move struct {
	rotate
	to, endpoints []string
	pluginTimeout time.Duration
}

const moveExample = `  atrest rotate --to secretbox --apiservers cp-1,cp-2,cp-3 --config '/mnt/{apiserver}/encryption.yaml' \
    --state ./rotation --cacert ca.crt --cert client.crt --key client.key --plan
  atrest rotate --to kms:vault --endpoint unix:///run/kmsplugin/vault.sock --apiservers cp-1,cp-2,cp-3 \
    --config '/mnt/{apiserver}/encryption.yaml' --state ./rotation --cacert ca.crt --cert client.crt --key client.key`

func (m *move) addFlags(flags *pflag.FlagSet) {
	m.add(flags)
	m.turns.add(flags)
	flags.StringSliceVar(&m.to, "to", nil, "what is to be written with: aescbc, aesgcm, secretbox, identity or kms:NAME, several by commas where several entries are moved; kms-v1:NAME is a plugin of KMS v1, which is deprecated, and takes --plugin-checked")
	flags.StringSliceVar(&m.endpoints, "endpoint", nil, "with --to kms:NAME: socket of the plugin, as in unix:///run/kms.sock; "+rollout.Placeholder+" in it stands for the name of each apiserver")
	flags.DurationVar(&m.pluginTimeout, "plugin-timeout", 0, "with --to kms:NAME: timeout of the provider; 0 leaves it to the apiserver, which takes 3s")
}

// kinds are those that --to may name, by what it calls them.
var kinds = map[string]config.Kind{
	"aescbc": config.AESCBC, "aesgcm": config.AESGCM, "secretbox": config.Secretbox, "identity": config.Identity,
	"kms": config.KMSv2, "kms-v1": config.KMSv1,
}

type target struct{ rollout.Target }

// Move is that of the target, as a kind of rotation.
func (t target) Move(ctx context.Context, files rollout.Files, apiservers []string, folder *rollout.Folder) (rollout.Kind, error) {
	return t.Target.Move(ctx, files, apiservers, folder)
}

// target is what --to names.
func (m *move) target() (target, error) {
	t := target{rollout.Target{Now: time.Now()}}
	var names []string
	for i, to := range m.to {
		kind, name, named := strings.Cut(to, ":")
		t.Kind = kinds[kind]
		first, _, _ := strings.Cut(m.to[0], ":")
		switch {
		case t.Kind == "":
			return t, usagef("flag --to is %q: name one of aescbc, aesgcm, secretbox, identity and kms:NAME", to)
		case t.Kind.IsKMS() != named || named && name == "":
			return t, usagef("flag --to is %q: a name belongs to kms, as in kms:vault, and to nothing else", to)
		case kind != first || i > 0 && !named:
			return t, usagef("flag --to is %q: several can only be of kms", strings.Join(m.to, ","))
		}
		names = append(names, name)
	}
	switch {
	case !t.Kind.IsKMS() && (len(m.endpoints) > 0 || m.pluginTimeout != 0):
		return t, usagef("flags --endpoint and --plugin-timeout are for --to kms:NAME")
	case t.Kind.IsKMS() && len(m.endpoints) != len(names):
		return t, usagef("flags --to and --endpoint: %d and %d are given, and each provider needs one of each", len(names), len(m.endpoints))
	case m.pluginTimeout < 0:
		return t, usagef("flag --plugin-timeout is %s: it cannot be negative", m.pluginTimeout)
	}
	if t.Kind.IsKMS() {
		t.Plugins = func(apiserver string) (all []edit.Provider) {
			for i, name := range names {
				endpoint := rollout.Fill(m.endpoints[i], apiserver)
				all = append(all, edit.Provider{Name: name, Endpoint: endpoint, Timeout: m.pluginTimeout, V1: t.Kind == config.KMSv1})
			}
			return all
		}
	}
	return t, nil
}
