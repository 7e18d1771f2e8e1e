package main

import (
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/operate/rollout"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// twoPlugins is the rotation from one plugin to another.
type twoPlugins struct {
	rotate
	from, to, endpoints []string
	pluginTimeout       time.Duration
}

const twoPluginsHelp = `Rotate from one KMS plugin to another.

For a plugin that knows one version of its key for all its life, as Azure's does:
the new version of the key is another plugin, with another socket, under another
provider name. Start it beside the old one on every node first. Then, without a
restart of any apiserver that follows its configuration:

  1. the new provider is added to every configuration, to read with
  2. the two are exchanged: from now on it writes
  3. everything is rewritten
  4. an audit of etcd counts nothing under the old one
  5. the old one is removed from every configuration
  6. etcd is counted once more
  7. it says which plugin may be stopped and which key disabled

Before a step every apiserver has to have the configuration of the one before in effect
and in its file, from which no apiserver ever writes what another cannot read. 1 and 2
are done with one apiserver first, --first or the first by name, and with the others
when that one is seen to be well: by a canary, after 2. A new plugin that does not
encrypt, or not decrypt, is found out there: atrest check on each node finds it before
1. A file that is put back meanwhile is written again.

To go back before 5, stop this command and give atrest rotate abort, also if a new plugin
does not encrypt or not decrypt. From 5 on rotate the other way, with another folder for
--state.` + turnsHelp

func newTwoPlugins(s streams) *cobra.Command {
	r := &twoPlugins{rotate: rotate{streams: s}}
	command := &cobra.Command{
		Use:   "two-plugins",
		Short: "Rotate from one KMS plugin to another",
		Long:  twoPluginsHelp,
		Example: `  atrest rotate two-plugins --from kms-1 --to kms-2 --endpoint unix:///run/kmsplugin/kms-2.sock \
    --apiservers cp-1,cp-2,cp-3 --config '/mnt/{apiserver}/encryption.yaml' --state ./rotation \
    --cacert ca.crt --cert client.crt --key client.key --plan`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error {
			if err := r.checkNames(); err != nil {
				return err
			}
			return r.run(command.Context(), kindIs(rollout.Move{From: r.from, To: r.to, Changes: r.changes}))
		},
	}
	flags := command.Flags()
	r.add(flags)
	r.turns.add(flags)
	flags.StringSliceVar(&r.from, "from", nil, "name of the provider to leave; several, by commas, where each resource has its own")
	flags.StringSliceVar(&r.to, "to", nil, "name of the new provider, which was never used before; as many as --from")
	flags.StringSliceVar(&r.endpoints, "endpoint", nil, "socket of the new plugin, as in unix:///run/kms.sock; as many as --to; "+rollout.Placeholder+" in it stands for the name of each apiserver")
	flags.DurationVar(&r.pluginTimeout, "plugin-timeout", 0, "timeout of the new provider; 0 leaves it to the apiserver, which takes 3s")
	return command
}

func (r *twoPlugins) checkNames() error {
	switch {
	case len(r.from) == 0:
		return usagef("flag --from is missing: name the provider to leave")
	case len(r.to) != len(r.from) || len(r.endpoints) != len(r.from):
		return usagef("flags --from, --to and --endpoint: %d, %d and %d are given, and each provider needs one of each", len(r.from), len(r.to), len(r.endpoints))
	case len(r.fleet.apiservers) > 1 && strings.Contains(strings.Join(r.endpoints, ""), rollout.Placeholder) && r.config != "" && !strings.Contains(r.config, rollout.Placeholder):
		return usagef("flag --endpoint names a socket for each apiserver, and --config one file for all: put %s into both", rollout.Placeholder)
	case r.pluginTimeout < 0:
		return usagef("flag --plugin-timeout is %s: it cannot be negative", r.pluginTimeout)
	}
	return nil
}

func (r *twoPlugins) changes(apiserver string) []edit.Replacement {
	var all []edit.Replacement
	for i := range r.from {
		endpoint := rollout.Fill(r.endpoints[i], apiserver)
		all = append(all, edit.Replacement{Old: r.from[i], New: edit.Provider{Name: r.to[i], Endpoint: endpoint, Timeout: r.pluginTimeout}})
	}
	return all
}

// onePlugin is the rotation of a plugin whose key_id changes while it runs.
type onePlugin struct {
	rotate
	provider []string
	from     string
	watch    bool
}

// wholeHash is that of a key_id.
var wholeHash = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func (r *onePlugin) checkNames() error {
	switch {
	case len(r.provider) == 0:
		return usagef("flag --provider is missing: name the KMS provider that everything is written with")
	case strings.HasPrefix(r.from, "sha256:") && !wholeHash.MatchString(r.from), wholeHash.MatchString("sha256:" + r.from):
		return usagef("flag --from is %q: write a hash as sha256: and all of its 64 digits, as -o json has it, or --from current", r.from)
	}
	return nil
}

const onePluginHelp = `Rotate to the new key_id of a KMS plugin that changes it while it runs.

Rotate the key at the KMS; no file, apiserver or plugin is touched here. Then:

  1. every apiserver has to have the same new key_id from a healthy plugin, and
     to have written under it: an apiserver goes on under the old one for up to a
     minute or, if its plugin is away, for three
  2. that has to stay so for --hold; whatever breaks it begins it anew
  3. everything is rewritten
  4. an audit of etcd counts nothing under another key_id
  5. it says which key_ids may be disabled: those that nothing at all is stored under

One that lags behind is named, and nothing is rewritten until it has caught up:
what it writes meanwhile would be under the old key again, unseen. A further
change of the key_id while objects are rewritten is not lost: it comes next.

Without --from it is taken that the key is rotated already: the key_id that all
apiservers have is the new one. --from current waits for another than they have
now, so that it can be begun before the rotation at the KMS.`

func newOnePlugin(s streams) *cobra.Command {
	r := &onePlugin{rotate: rotate{streams: s}}
	command := &cobra.Command{
		Use:   "one-plugin",
		Short: "Rotate to the new key_id of a plugin that changes it while it runs",
		Long:  onePluginHelp,
		Example: `  atrest rotate one-plugin --provider vault --apiservers cp-1,cp-2,cp-3 \
    --config /etc/kubernetes/encryption.yaml --state ./rotation \
    --cacert ca.crt --cert client.crt --key client.key
  atrest rotate one-plugin --provider vault --from current --watch --apiservers cp-1,cp-2,cp-3 \
    --config /etc/kubernetes/encryption.yaml --state /var/lib/atrest`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error {
			if err := r.checkNames(); err != nil {
				return err
			}
			return r.run(command.Context(), kindIs(rollout.OnePlugin{Providers: r.provider, From: r.from, Watch: r.watch}))
		},
	}
	flags := command.Flags()
	r.add(flags)
	flags.StringSliceVar(&r.provider, "provider", nil, "name of the KMS provider; several, by commas, where each resource has its own on the same plugin")
	flags.StringVar(&r.from, "from", "", "key_id to be left, or its sha256:..., or current: wait until all apiservers have another")
	flags.BoolVar(&r.watch, "watch", false, "do not end: rotate whenever the key_id changes")
	return command
}
