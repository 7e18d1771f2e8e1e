package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

const keyFileHelp = `A KMS v2 plugin whose keys (KEKs) are in one file.

Start it on the control plane node, before the apiserver, as a service that
stays:

  mkdir -p -m 0700 /var/lib/atrest /run/kmsplugin
  atrest-kms-plugin keyfile create --key-file /var/lib/atrest/kek.json
  atrest-kms-plugin keyfile serve \
    --key-file /var/lib/atrest/kek.json \
    --listen unix:///run/kmsplugin/keyfile.sock

and name its socket in the apiserver's --encryption-provider-config:

  apiVersion: apiserver.config.k8s.io/v1
  kind: EncryptionConfiguration
  resources:
  - resources: ["secrets"]
    providers:
    - kms:
        apiVersion: v2
        name: keyfile
        endpoint: unix:///run/kmsplugin/keyfile.sock
        timeout: 3s
    - identity: {}   # reads what was stored before encryption was switched on

Then rotate now and again, while everything runs:

  atrest-kms-plugin keyfile rotate --key-file /var/lib/atrest/kek.json

The plugin notices within a second, an apiserver within a minute, and writes
under the new key from then on; what it wrote before stays readable, under the
old one. Rewrite it if you want it under the new key.

The key file and a copy of etcd together reveal everything, so keep them apart;
without the key file the data is lost, so keep a copy of it.

Several control plane nodes have the same versions, each in a file of its own:
make it on one and bring it to the others with "import". Never rotate there:
a node could not read what another one writes. Instead make the new version on
one node, bring it to all, and only then let them write with it:

  on one node    keyfile stage      prints the new version's key_id
  on the others  keyfile import FILE, a copy of the first node's file
  on each        keyfile activate KEY_ID

If nodes were rotated apart, "merge" on each the other's file: both read
everything then, and have the same file.

A key that nothing is stored under any more may be destroyed, with "destroy".

A key file that is mounted into a container is mounted with its folder: a mount
of the file alone never shows a change.`

func newKeyFileGroup() *cobra.Command {
	return group("keyfile", "Keys in one file, for machines that have no KMS", keyFileHelp,
		newServe(), newCreate(), newRotate(), newStage(), newActivate(), newMerge(), newImport(), newList(), newDestroy())
}

// keyFileFlag is the flag that every command has; it must not be empty.
func keyFileFlag(command *cobra.Command, path *string) {
	command.Flags().StringVar(path, "key-file", "", "path of the key file (required)")
}

func newServe() *cobra.Command {
	var o serveOptions
	var keyFile string
	var create bool
	command := &cobra.Command{
		Use:   "serve --listen unix:///PATH --key-file PATH",
		Short: "Serve KMS v2 on a unix socket until SIGTERM or SIGINT",
		Long: `Serve KMS v2 on a unix socket until SIGTERM or SIGINT.

The socket's folder must exist, and let nobody else write, nor may those above
it, unless they are sticky as /tmp is. The socket has mode 0600, so the apiserver
runs as the same user or as root, or 0660 with --group. A socket left by a crash
is replaced, one that somebody serves on is not. One that systemd has bound, by a
.socket unit with the path of --listen as its one ListenStream and
SocketMode=0600, is served as it is: calls wait in it while this is replaced by
another version.

While the file is missing, damaged, open to others or without a version that it
had, apiservers are told so, nothing is wrapped, and what the plugin has in
memory unwraps.

With --create a key file is made if there is none. Leave the flag away once
there is one: if the disk with the file is not mounted one day, an error is
better than a new key that reads nothing.

With --metrics-address it serves /metrics, /livez, /readyz and /healthz over HTTP,
without login: on loopback, unless another address is written out.

With --hold-down a new version wraps only once it is that old, which gives the
time to bring it to other nodes. --pin takes the ID that "list" shows.`,
		Example: `  atrest-kms-plugin keyfile serve --listen unix:///run/kmsplugin/keyfile.sock --key-file /var/lib/atrest/kek.json`,
		Args:    noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := requireFlags(command, "listen", "key-file"); err != nil {
				return err
			}
			file := keyfile.At(keyFile)
			return o.serve(command, file, func(ctx context.Context) ([]any, error) {
				return []any{"keyFile", keyFile}, ensure(ctx, file, create)
			})
		},
	}
	keyFileFlag(command, &keyFile)
	o.addFlags(command, keyfile.Config())
	command.Flags().BoolVar(&create, "create", false, "make the key file if it does not exist")
	return command
}

// ensure is an error if the file cannot be read. It makes it only after it was not there, so
// that a file in a folder that is read-only can be served with --create too.
func ensure(ctx context.Context, file *keyfile.File, create bool) error {
	_, err := file.List()
	switch {
	case errors.Is(err, keyfile.ErrNotDurable):
		return nil // it is read with, and Status says so
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case !create:
		return fmt.Errorf("%w (create makes one, and so does serve --create)", err)
	}
	created, err := file.Create(ctx)
	if errors.Is(err, fs.ErrExist) {
		_, err = file.List() // another process was faster
		return err
	}
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("made a new key file: keep a copy, away from copies of etcd", "keyFile", file.Path(), "keyID", created.KeyID)
	return nil
}
