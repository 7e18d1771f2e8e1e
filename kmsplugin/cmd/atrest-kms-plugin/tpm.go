package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
)

const tpmHelp = `A KMS v2 plugin whose keys (KEKs) are in one file, sealed under the TPM 2.0 of
this machine: the file opens here and nowhere else. For machines with no KMS.

Once, and with the recovery key that is printed kept on paper, away from here:

  mkdir -p -m 0700 /var/lib/atrest /run/kmsplugin
  atrest-kms-plugin tpm create --key-file /var/lib/atrest/tpm.json --recovery

Then before the apiserver, as a service that stays:

  atrest-kms-plugin tpm serve \
    --key-file /var/lib/atrest/tpm.json \
    --listen unix:///run/kmsplugin/tpm.sock

and the EncryptionConfiguration as for a key file ("keyfile --help"). Rotate
now and again, while everything runs:

  atrest-kms-plugin tpm rotate --key-file /var/lib/atrest/tpm.json

It protects what is stored against who has the disk, or a copy of it, without
the machine. It does not against root on the running machine, nor, without
--pcrs, against who starts the machine with a system of their own. Without a
recovery key the data is lost with the mainboard.

Several control plane nodes have the same keys, each sealed under its own TPM.
Bring a copy of the file to the other node, and seal it there:

  on the other   tpm recover COPY --recovery-key-file -

For a rotation:

  on one node    tpm stage       prints the new version's key_id
  on the others  tpm recover COPY --recovery-key-file -
  on each        tpm activate KEY_ID

Each keeps the PCRs, the version that wraps and the recovery key that it has. A
COPY that somebody else has put a key in is refused.

With --pcrs an update of the firmware, or of whatever the PCRs measure, closes
the keys. Before it run "reseal --pcrs none", and after it "reseal --pcrs" with
what was there; who forgets needs the recovery key.

A key that nothing is stored under any more may be destroyed, with "destroy".

More is in docs/plugins/tpm.md.`

func newTPMGroup() *cobra.Command {
	return withoutTypedKeys(group("tpm", "Keys in one file that the TPM of this machine opens", tpmHelp,
		newTPMServe(), newTPMCreate(), newTPMRotate(), newTPMStage(), newTPMActivate(), newTPMReseal(), newTPMRecover(), newTPMList(), newTPMDestroy()))
}

// addTPMFlags adds what every command that asks the TPM has.
func addTPMFlags(command *cobra.Command, config *tpm.Config) {
	keyFileFlag(command, &config.File)
	command.Flags().StringVar(&config.Device, "tpm", "/dev/tpmrm0", "the TPM: a device, or the unix socket of a swtpm")
}

func addPCRFlag(command *cobra.Command, config *tpm.Config, without string) {
	command.Flags().StringVar(&config.PCRs, "pcrs", "", `have the keys open only while these PCRs are what they are now, as in sha256:7, or "none"; default `+without)
}

// openTPM is the file with its TPM, once the flags are found to make sense.
func openTPM(command *cobra.Command, config tpm.Config) (*tpm.Store, error) {
	if err := requireFlags(command, "key-file", "tpm"); err != nil {
		return nil, err
	}
	if info, err := os.Stat(config.Device); err == nil && info.Mode()&(os.ModeDevice|os.ModeSocket) == 0 {
		return nil, usagef("flag --tpm: %s is neither a device nor a socket: name the TPM's, /dev/tpmrm0", config.Device)
	}
	store, err := tpm.New(config)
	if err != nil {
		return nil, usageError{err}
	}
	return store, nil
}

func newTPMServe() *cobra.Command {
	var o serveOptions
	var config tpm.Config
	command := &cobra.Command{
		Use:   "serve --listen unix:///PATH --key-file PATH",
		Short: "Serve KMS v2 on a unix socket until SIGTERM or SIGINT",
		Long: `Serve KMS v2 on a unix socket until SIGTERM or SIGINT.

The socket is as that of a key file's plugin ("keyfile serve --help"). The keys
are unsealed at the start and stay in memory, which a TPM would be too slow for
otherwise; a slow one takes minutes for hundreds, and what is unsealed by then
unwraps. With no limit on locked memory (LimitMEMLOCK=infinity in a unit) it is
never swapped.

Every --check the TPM proves that it would open the keys again. While it does
not, or the file is missing, damaged, open to others or without a version that
it had, apiservers are told so, nothing is wrapped, and what the plugin has in
memory unwraps.`,
		Example: `  atrest-kms-plugin tpm serve --listen unix:///run/kmsplugin/tpm.sock --key-file /var/lib/atrest/tpm.json`,
		Args:    noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := requireFlags(command, "listen", "key-file"); err != nil {
				return err
			}
			if config.Check <= 0 {
				return usagef("flag --check is %s: it has to be over 0", config.Check)
			}
			store, err := openTPM(command, config)
			if err != nil {
				return err
			}
			return o.serve(command, store, func(context.Context) ([]any, error) {
				_, err := store.List()
				if errors.Is(err, keyfile.ErrNotDurable) {
					err = nil // it is read with, and Status says so
				}
				return []any{"keyFile", config.File, "tpm", config.Device}, err
			})
		},
	}
	addTPMFlags(command, &config)
	o.addFlags(command, tpm.KeeperConfig())
	command.Flags().DurationVar(&config.Check, "check", tpm.DefaultCheck, "time between two proofs that the TPM would open the keys again")
	return command
}
