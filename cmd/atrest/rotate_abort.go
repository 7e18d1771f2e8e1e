package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/operate/rollout"
)

const abortHelp = `Take a rotation back: to what wrote before it.

With the folder --state, the apiservers and the files of a rotation that was begun by
atrest rotate --to, two-plugins, enable or disable. Stop that one first. What else its
flags were is told by the files. Then, behind the same gates as on the way there:

  1. it is seen that the former provider is read with everywhere
  2. the two are exchanged, on one apiserver first: from now on the former one writes
  3. everything is rewritten
  4. an audit of etcd counts nothing under the one that is taken back
  5. that one is removed, so that each file is as it was before
  6. etcd is counted once more
  7. it says what may be stopped or disabled

Where nothing was written with the new one yet, it begins with 4, and --hold is not
waited for.

The new provider need not work, as that may be the reason: one that does not encrypt,
or not decrypt, is no longer written with after 2. What is stored with it needs it to
be read, so 3 waits for it, if there is any. The former one has to work: as long as the
first apiserver cannot write with it, no other follows. To leave it so, put the copy
swapped-NAME.yaml of the folder in the place of that one's file, and begin the rotation
to the new one once more, by two-plugins and with a new folder.

From now on the folder is of a rotation that goes back, also after Ctrl-C or a crash:
the same command goes on, and any other refuses the folder. A new key that was made for
the rotation stays in the files until 5, and is nowhere after that. A backup of etcd
that was made while it was written with needs it: copy it out of a file before, if one
is to be kept.

There is no way back when the removal of the former provider has begun: let the
rotation end, and rotate the other way. Nor is there one from one-plugin, which changes
no file: the key is changed at the KMS.

Exit codes are those of atrest rotate.` + turnsHelp

func newAbort(s streams) *cobra.Command {
	r := &rotate{streams: s}
	command := &cobra.Command{
		Use:   "abort",
		Short: "Take a rotation back, to what wrote before it",
		Long:  abortHelp,
		Example: `  atrest rotate abort --apiservers cp-1,cp-2,cp-3 --config '/mnt/{apiserver}/encryption.yaml' \
    --state ./rotation --cacert ca.crt --cert client.crt --key client.key --plan`,
		Args: arguments(0, ""),
		RunE: func(command *cobra.Command, _ []string) error {
			return r.run(command.Context(), back)
		},
	}
	r.add(command.Flags())
	r.turns.add(command.Flags())
	return command
}

// back is the way back of what the folder has, as a kind of rotation.
var back kindOf = func(ctx context.Context, files rollout.Files, apiservers []string, folder *rollout.Folder) (rollout.Kind, error) {
	return rollout.Back(ctx, files, apiservers, folder)
}
