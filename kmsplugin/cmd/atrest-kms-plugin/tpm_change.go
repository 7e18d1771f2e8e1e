package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/kmsplugin/tpm"
)

// tpmTimeout is how long a change may take, and tpmKeyTime how much longer for each key: to seal one
// again takes 16 or 17 answers of a TPM, of half a second each where it is slow.
const (
	tpmTimeout = 2 * time.Minute
	tpmKeyTime = 10 * time.Second
)

// tpmTime is how long a change of some files may take.
func tpmTime(paths ...string) time.Duration {
	most := 0
	for _, path := range paths {
		most = max(most, len(tpmFileAt(path).keys))
	}
	return tpmTimeout + time.Duration(most)*tpmKeyTime
}

// A tpmFile is what may be told of a file.
type tpmFile struct {
	keys      []tpm.KeyInfo
	destroyed []string
}

// tpmFileAt is a file, as far as it can be read.
func tpmFileAt(path string) (f tpmFile) {
	if store, err := tpm.New(tpm.Config{File: path}); err == nil {
		f.keys, _ = store.List()
		f.destroyed, _ = store.Destroyed()
	}
	return f
}

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
	// read is what run needs and somebody may have to type, which has all the time that it takes.
	read func(argument string, in io.Reader) error
	// flags adds others, if there are more.
	flags func(*pflag.FlagSet, *tpm.Config)
	// also says what else became of the file, if there is more to say.
	also func(before, after tpmFile, argument string, config tpm.Config) string
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
			return c.change(command, config, append(args, "")[0], recovery)
		},
	}
	addTPMFlags(command, &config)
	if c.flags != nil {
		c.flags(command.Flags(), &config)
	}
	if c.pcrs != "" {
		addPCRFlag(command, &config, c.pcrs)
	}
	if c.recovery {
		command.Flags().BoolVar(&recovery, "recovery", false, "print a recovery key as well, after the key_id: it opens the keys on any machine, and is kept nowhere")
		command.Long += `
With --recovery a line with the recovery key follows, before the file is changed:
where it cannot be printed nothing is.`
	}
	return command
}

func (c tpmChange) change(command *cobra.Command, config tpm.Config, argument string, recovery bool) error {
	if recovery {
		config.Show = func(writes tpm.KeyInfo, recoveryKey string) error { return show(command, writes, recoveryKey) }
	}
	store, err := openTPM(command, config)
	if err != nil {
		return err
	}
	if c.use == createUse && config.PCRs != "" && config.PCRs != tpm.NoPCRs && !recovery {
		return usagef("flag --pcrs without --recovery: the next update of the firmware would close the keys for ever")
	}
	if c.read != nil {
		if err := c.read(argument, command.InOrStdin()); err != nil {
			return err
		}
	}
	before := tpmFileAt(config.File)
	ctx, cancel := context.WithTimeout(command.Context(), tpmTime(config.File, argument))
	defer cancel()
	info, recoveryKey, err := c.run(ctx, store, argument, recovery)
	if errors.Is(err, tpm.ErrConfig) || errors.Is(err, tpm.ErrRecoveryKey) || errors.Is(err, tpm.ErrNoTPM) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	also := ""
	if c.also != nil {
		also = c.also(before, tpmFileAt(config.File), argument, config)
	}
	return c.tell(command, config.File, info, recoveryKey != "", also)
}

// show prints a new recovery key, which nothing is sealed for before it is out of this process.
func show(command *cobra.Command, writes tpm.KeyInfo, recoveryKey string) error {
	fmt.Fprintln(command.ErrOrStderr(), "the line after the key_id is the recovery key: write it down, keep it away from this machine and from copies of the file; it is not shown again")
	out := command.OutOrStdout()
	if _, err := io.WriteString(out, writes.KeyID+"\n"+recoveryKey+"\n"); err != nil {
		return err
	}
	file, ok := out.(interface{ Sync() error })
	if !ok {
		return nil
	}
	if err := file.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) { // a pipe, or a terminal
		return err
	}
	return nil
}

// tell says what became of a version. With a new recovery key its key_id was shown before.
func (c tpmChange) tell(command *cobra.Command, path string, info tpm.KeyInfo, shown bool, also string) error {
	fmt.Fprintf(command.ErrOrStderr(), "%s: version %s %s\n%s", path, info.ID, c.done, also)
	if shown {
		return nil
	}
	if !info.Recovery {
		fmt.Fprintln(command.ErrOrStderr(), `there is no recovery key: with this TPM all that is stored is lost; "reseal --recovery" makes one`)
	}
	if _, err := fmt.Fprintln(command.OutOrStdout(), info.KeyID); err != nil {
		return fmt.Errorf("the change is made, and the key_id could not be written: \"list -o json\" has it: %w", err)
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
--pcrs none; after it --pcrs with what was there, which needs a recovery key. With
--recovery they are sealed for a new one, and the old one opens this file no more.`,
		example: `  atrest-kms-plugin tpm reseal --key-file /var/lib/atrest/tpm.json --pcrs none
  atrest-kms-plugin tpm reseal --key-file /var/lib/atrest/tpm.json --recovery`,
		pcrs: "those it has", recovery: true,
		run: func(ctx context.Context, store *tpm.Store, _ string, recovery bool) (tpm.KeyInfo, string, error) {
			return store.Reseal(ctx, recovery)
		},
		done: "wraps, and all were sealed again; " + copyNow,
	}.command()
}
