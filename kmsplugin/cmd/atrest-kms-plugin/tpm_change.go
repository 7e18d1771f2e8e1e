package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/kmsplugin/tpm"
)

// tpmTimeout is how long a change may take: a TPM is slow, and there may be many keys.
const tpmTimeout = 2 * time.Minute

// A tpmChange changes the file of sealed keys, and tells of one version of it.
type tpmChange struct {
	use, short, long, example string
	args                      cobra.PositionalArgs
	// pcrs says what no --pcrs means, if there is such a flag, and recovery if there is a
	// flag for a new recovery key.
	pcrs     string
	recovery bool
	run      func(ctx context.Context, store *tpm.Store, argument string, recovery bool) (tpm.KeyInfo, string, error)
	done     string // what became of the version
}

func (c tpmChange) command() *cobra.Command {
	var config tpm.Config
	var recovery bool
	command := &cobra.Command{
		Use: c.use, Short: c.short, Example: c.example, Args: c.args,
		Long: c.long + `

Run it as the owner of the file. A plugin that serves from the file notices
within a second. The key_id goes to standard output, alone.`,
		RunE: func(command *cobra.Command, args []string) error {
			store, err := openTPM(command, config)
			if err != nil {
				return err
			}
			if c.use == createUse && config.PCRs != "" && config.PCRs != tpm.NoPCRs && !recovery {
				return usagef("flag --pcrs without --recovery: the next update of the firmware would close the keys for ever")
			}
			ctx, cancel := context.WithTimeout(command.Context(), tpmTimeout)
			defer cancel()
			info, recoveryKey, err := c.run(ctx, store, append(args, "")[0], recovery)
			if err != nil {
				return err
			}
			return c.tell(command, config.File, info, recoveryKey)
		},
	}
	addTPMFlags(command, &config)
	if c.pcrs != "" {
		addPCRFlag(command, &config, c.pcrs)
	}
	if c.recovery {
		command.Flags().BoolVar(&recovery, "recovery", false, "print a recovery key as well, after the key_id: it opens the keys on any machine, and is kept nowhere")
		command.Long += `
With --recovery a line with the recovery key follows.`
	}
	return command
}

func (c tpmChange) tell(command *cobra.Command, path string, info tpm.KeyInfo, recoveryKey string) error {
	fmt.Fprintf(command.ErrOrStderr(), "%s: version %s %s\n", path, info.ID, c.done)
	out := info.KeyID + "\n"
	if recoveryKey != "" {
		fmt.Fprintln(command.ErrOrStderr(), "the line after the key_id is the recovery key: write it down, keep it away from this machine and from copies of the file; it is not shown again")
		out += recoveryKey + "\n"
	} else if !info.Recovery {
		fmt.Fprintln(command.ErrOrStderr(), `there is no recovery key: with this TPM all that is stored is lost; "reseal --recovery" makes one`)
	}
	if _, err := io.WriteString(command.OutOrStdout(), out); err != nil {
		return fmt.Errorf("the change is made, and what came of it could not be written: \"list\" has the key_id, and \"reseal --recovery\" makes another recovery key: %w", err)
	}
	return nil
}

const createUse = "create --key-file PATH"

func newTPMCreate() *cobra.Command {
	return tpmChange{
		use: createUse, short: "Make a file with one key, sealed under the TPM", args: noArgs,
		long: `Make a file with one key, sealed under the TPM. What is at the path stays,
whatever it is.`,
		example: `  atrest-kms-plugin tpm create --key-file /var/lib/atrest/tpm.json --recovery
  atrest-kms-plugin tpm create --key-file /var/lib/atrest/tpm.json --recovery --pcrs sha256:7`,
		pcrs: "bound to none", recovery: true,
		run: func(ctx context.Context, store *tpm.Store, _ string, recovery bool) (tpm.KeyInfo, string, error) {
			return store.Create(ctx, recovery)
		},
		done: "wraps; " + copyNow,
	}.command()
}

// plain is a change that needs the file and the TPM alone.
func plain(change func(*tpm.Store, context.Context) (tpm.KeyInfo, error)) func(context.Context, *tpm.Store, string, bool) (tpm.KeyInfo, string, error) {
	return func(ctx context.Context, store *tpm.Store, _ string, _ bool) (tpm.KeyInfo, string, error) {
		info, err := change(store, ctx)
		return info, "", err
	}
}

func newTPMRotate() *cobra.Command {
	return tpmChange{
		use: "rotate --key-file PATH", short: "Add a key that wraps from now on, while the plugin serves", args: noArgs,
		long: `Add a key that wraps from now on; all older ones stay readable.

With several nodes use stage, recover and activate: until the others have the
new key they cannot read what this node writes.`,
		example: `  atrest-kms-plugin tpm rotate --key-file /var/lib/atrest/tpm.json`,
		run:     plain((*tpm.Store).Rotate),
		done:    "wraps from now on; " + copyNow,
	}.command()
}

func newTPMStage() *cobra.Command {
	return tpmChange{
		use: "stage --key-file PATH", short: "Add a key that only unwraps, until it is activated", args: noArgs,
		long: `Add a key that only unwraps.

It is the first step of a rotation of several nodes: recover a copy of this file
on each of the others then, and activate the key on each once all have it.`,
		example: `  atrest-kms-plugin tpm stage --key-file /var/lib/atrest/tpm.json`,
		run:     plain((*tpm.Store).Stage),
		done:    "unwraps from now on; bring it to all nodes, then activate it on each",
	}.command()
}

func newTPMActivate() *cobra.Command {
	return tpmChange{
		use: "activate [ID] --key-file PATH", short: "Have another key of the file wrap",
		args: change{takes: "the beginning of an ID or key_id", optional: true}.args,
		long: `Have another key of the file wrap from now on: the newest, or the one whose
ID or key_id begins as it is given. The TPM is not asked.

Be sure that all nodes have it: "list" there shows it.`,
		example: `  atrest-kms-plugin tpm activate --key-file /var/lib/atrest/tpm.json
  atrest-kms-plugin tpm activate 0f3a91 --key-file /var/lib/atrest/tpm.json`,
		run: func(ctx context.Context, store *tpm.Store, id string, _ bool) (tpm.KeyInfo, string, error) {
			info, err := store.Activate(ctx, id)
			return info, "", err
		},
		done: "wraps from now on",
	}.command()
}

func newTPMReseal() *cobra.Command {
	return tpmChange{
		use: "reseal --key-file PATH", short: "Seal all keys again, with other PCRs or a new recovery key", args: noArgs,
		long: `Seal all keys again under the same TPM. They stay the same keys.

Before an update of the firmware, or of what else the PCRs measure, give
--pcrs none; after it --pcrs with what was there. With --recovery they are sealed
for a new recovery key, and the old one opens this file no more.`,
		example: `  atrest-kms-plugin tpm reseal --key-file /var/lib/atrest/tpm.json --pcrs none
  atrest-kms-plugin tpm reseal --key-file /var/lib/atrest/tpm.json --recovery`,
		pcrs: "those it has", recovery: true,
		run: func(ctx context.Context, store *tpm.Store, _ string, recovery bool) (tpm.KeyInfo, string, error) {
			return store.Reseal(ctx, recovery)
		},
		done: "wraps, and all were sealed again; " + copyNow,
	}.command()
}

func newTPMRecover() *cobra.Command {
	var keyPath string
	var command *cobra.Command
	command = tpmChange{
		use: "recover [COPY] --key-file PATH --recovery-key-file PATH", short: "Seal all keys under this TPM, with the recovery key",
		args: change{takes: "the path of a copy of another node's file", optional: true}.args,
		long: `Open all keys with the recovery key, and seal them under the TPM of this machine:
after the TPM was cleared, the mainboard was replaced or the PCRs changed, or for
another node. They stay the same keys, with the same key_ids.

With a COPY of another node's file its keys take the place of this file's, or
make it; it is refused if a key of this file would be lost.

The recovery key is read from a file, or from standard input if that is "-".`,
		example: `  atrest-kms-plugin tpm recover --key-file /var/lib/atrest/tpm.json --recovery-key-file -
  atrest-kms-plugin tpm recover /root/tpm-of-cp-1.json --key-file /var/lib/atrest/tpm.json --recovery-key-file -`,
		pcrs: "those it has",
		run: func(ctx context.Context, store *tpm.Store, from string, _ bool) (tpm.KeyInfo, string, error) {
			if keyPath == "" {
				return tpm.KeyInfo{}, "", usagef("required and not given: --recovery-key-file")
			}
			recoveryKey, err := readRecoveryKey(keyPath, command.InOrStdin())
			if err != nil {
				return tpm.KeyInfo{}, "", err
			}
			info, err := store.Recover(ctx, recoveryKey, from)
			if errors.Is(err, tpm.ErrRecoveryKey) {
				err = usageError{err}
			}
			return info, "", err
		},
		done: "wraps, and all are sealed under this TPM; " + copyNow,
	}.command()
	command.Flags().StringVar(&keyPath, "recovery-key-file", "", `file with the recovery key, or "-" for standard input (required)`)
	return command
}

// readRecoveryKey reads what may be one.
func readRecoveryKey(path string, stdin io.Reader) (string, error) {
	from := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return "", usagef("flag --recovery-key-file: %w", err)
		}
		defer file.Close()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, 1024))
	if err != nil {
		return "", usagef("flag --recovery-key-file: %w", err)
	}
	return string(data), nil
}
