package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/rollout"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

const enableHelp = `Begin to encrypt: write the first configuration of a cluster that has none.

It names the resources and has them stored as plain text, as they are now: nothing
changes when an apiserver takes it into use. From there atrest rotate --to goes to a
key or a plugin while the cluster serves, and back. A file that is there stays, and is
in the way unless it is the very same.

The file is the same on every node. Without --apiservers one is written, at --config;
with them one for each, where ` + rollout.Placeholder + ` in --config is the name of each. It is
a path here, or ssh://[USER@]HOST[:PORT]/PATH, where ssh makes it in a folder that is
there.

Then each kube-apiserver gets the flags that are printed, one after the other. What
runs as a static pod sees the file only if its folder is mounted; the folder, as a file
that is mounted by itself is not seen to change.

Exit codes:
  0  the files are written
  2  they are not all: wrong flags, another file that is there, or one that cannot be
     written`

type enableCommand struct {
	streams
	config     string
	resources  []string
	apiservers []string
	timeout    time.Duration
}

func newEnable(s streams) *cobra.Command {
	e := &enableCommand{streams: s}
	command := &cobra.Command{
		Use:   "enable",
		Short: "Begin to encrypt: write the first configuration of a cluster",
		Long:  enableHelp,
		Example: `  atrest enable --config /etc/kubernetes/encryption/config.yaml
  atrest enable --resources secrets,configmaps --apiservers cp-1,cp-2,cp-3 --config '/mnt/{apiserver}/config.yaml'
  atrest enable --apiservers cp-1,cp-2,cp-3 --config 'ssh://root@{apiserver}/etc/kubernetes/encryption/config.yaml'`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error { return e.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&e.config, "config", "", "where the file is written: a path here, or ssh://[USER@]HOST[:PORT]/PATH; "+rollout.Placeholder+" in it stands for the name of each of --apiservers")
	flags.StringSliceVar(&e.resources, "resources", []string{"secrets"}, "what is to be encrypted, as in secrets,configmaps or *.*")
	flags.StringSliceVar(&e.apiservers, "apiservers", nil, "names of the apiservers, if each is to have a file of its own")
	flags.DurationVar(&e.timeout, "hook-timeout", rollout.DefaultHookTimeout, "how long one call of ssh may take")
	return command
}

func (e *enableCommand) run(ctx context.Context) error {
	placed := strings.Contains(e.config, rollout.Placeholder)
	switch {
	case e.config == "":
		return usagef("flag --config is missing: name the file to be written")
	case slices.Contains(e.apiservers, ""):
		return usagef("flag --apiservers has an empty name: name each apiserver, by commas")
	case e.timeout <= 0:
		return usagef("flag --hook-timeout is %s: it has to be over 0", e.timeout)
	case len(e.apiservers) == 0 && placed:
		return usagef("flag --config has %s in it: name the --apiservers", rollout.Placeholder)
	case len(e.apiservers) > 1 && !placed:
		return usagef("flag --config names one file for all: put %s into it, or leave out --apiservers and copy the file to every node", rollout.Placeholder)
	}
	content, err := edit.First(e.resources)
	if err != nil {
		return err
	}
	if c, err := config.Parse(content, config.Options{}); err == nil {
		e.warnOfNames(audit.NewLayout("", nil), c)
	}
	names := e.apiservers
	if len(names) == 0 {
		names = []string{""}
	}
	files, err := e.files()
	if err != nil {
		return err
	}
	for _, name := range names {
		done := "written"
		if err := files.Create(ctx, name, content); err != nil {
			if is, _ := files.Read(ctx, name); !errors.Is(err, fs.ErrExist) || !bytes.Equal(is, content) {
				return err
			}
			done = "is there" // of a run that did not get to the others
		}
		fmt.Fprintf(e.out, "%s: %s, which encrypts nothing yet\n", done, files.At(name))
	}
	_, err = io.WriteString(e.out, nextSteps)
	return err
}

// created are files that can be made.
type created interface {
	Create(ctx context.Context, apiserver string, content []byte) error
	Read(ctx context.Context, apiserver string) ([]byte, error)
	At(apiserver string) string
}

func (e *enableCommand) files() (created, error) {
	if strings.HasPrefix(e.config, rollout.SSHScheme) {
		return sshFiles(e.config, e.timeout)
	}
	return rollout.LocalFiles{Path: e.config}, nil
}

const nextSteps = `next:
  1. Give each kube-apiserver these flags, with the path as it sees it, and restart it, one
     after the other; one that has the first flag already encrypts with its own file: keep that
       --encryption-provider-config=PATH
       --encryption-provider-config-automatic-reload=true
     kubeadm     by extraArgs and extraVolumes of the ClusterConfiguration, which makes the
                 static pod anew; upload it, for the nodes that join
     static pod  with a hostPath volume of the folder, of type Directory, without which it does
                 not start, and readOnly
     RKE2, k3s   by kube-apiserver-arg, and on RKE2 kube-apiserver-extra-mount; RKE2, and k3s with
                 secrets-encryption, encrypt already: copy their file to PATH instead of this
                 one, see docs/clusters/k3s.md
     Talos       encrypts already, and takes no flag: see docs/clusters/talos.md
     OpenShift, and a control plane of a cloud: by their own API, and this file is not for them
  2. See that all have it:      atrest status --apiservers ...
  3. Encrypt, and prove it:     atrest rotate --to secretbox --apiservers ... --config ... --state ...
`

const disableHelp = `Turn encryption off: have everything stored as plain text again, and prove it.

It is atrest rotate --to identity: what is read with is added, swapped, everything is
rewritten and counted, and the old key or plugin removed. What was encrypted in etcd is
then readable for whoever reads etcd, and its backups.

At the end the flags --encryption-provider-config and its automatic reload may be taken
from the apiservers, one after the other, in this order: first the flags, then the file.

Exit codes: those of atrest rotate.`

func newDisable(s streams) *cobra.Command {
	r := &move{rotate: rotate{streams: s}, to: []string{"identity"}}
	command := &cobra.Command{
		Use:   "disable",
		Short: "Turn encryption off: have everything stored as plain text again, and prove it",
		Long:  disableHelp,
		Example: `  atrest disable --apiservers cp-1,cp-2,cp-3 --config '/mnt/{apiserver}/encryption.yaml' --state ./off \
    --cacert ca.crt --cert client.crt --key client.key`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error {
			target, err := r.target()
			if err != nil {
				return err
			}
			return r.run(command.Context(), target.Move)
		},
	}
	r.add(command.Flags())
	r.turns.add(command.Flags())
	return command
}
