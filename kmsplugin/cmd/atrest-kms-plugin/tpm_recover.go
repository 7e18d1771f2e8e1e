package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/kmsplugin/tpm"
)

func newTPMRecover() *cobra.Command {
	var keyPath, recoveryKey string
	var command *cobra.Command
	command = tpmChange{
		use: "recover [COPY] --key-file PATH --recovery-key-file PATH", short: "Seal all keys under this TPM, with the recovery key",
		args: recoverArgs,
		long: `Open all keys with the recovery key, and seal them under the TPM of this machine:
after the TPM was cleared, the mainboard was replaced or the PCRs changed, or for
another node. They stay the same keys, with the same key_ids.

With a COPY of another node's file its keys are put in this file, or make it; it
is refused if a key of this file would be another one. A file that there is keeps
its PCRs, the version that wraps, its recovery key, which need not be those of
the COPY, and the versions that the COPY has not, as after a rotation on two
nodes; one that has no recovery key takes that of the COPY. What changed is
printed.

A key that somebody has put in a COPY, or in a backup, is refused, with no need
to compare anything: it has no proof that is made of the recovery key. What else
is in a COPY has none: the PCRs, which version wraps, and what was destroyed. A
key that was destroyed in the COPY goes here too, for ever, or does not come here
any more, with --remove-destroyed alone: see first on its node that it was, and
that nothing is stored under it.

A file of before there were proofs, which nothing was changed in since, is taken
where this TPM opens the same keys in the file here. Otherwise recover it on its
node first, or "reseal --recovery" it, and take a fresh copy; where that node is
no more, and nobody else could write the file, give --unproven.

The recovery key, that of the COPY if there is one, is read from a file, or from
standard input if that is "-".`,
		example: `  atrest-kms-plugin tpm recover --key-file /var/lib/atrest/tpm.json --recovery-key-file -
  atrest-kms-plugin tpm recover ./tpm-of-cp-1.json --key-file /var/lib/atrest/tpm.json --recovery-key-file -`,
		pcrs: "those it has, or those of the COPY where there is no file",
		flags: func(flags *pflag.FlagSet, config *tpm.Config) {
			flags.StringVar(&keyPath, "recovery-key-file", "", `file with the recovery key, or "-" for standard input (required)`)
			flags.BoolVar(&config.Adopt, "adopt-recovery", false, "have the recovery key of the COPY open this file from now on, and the one it has no more")
			flags.BoolVar(&config.RemoveDestroyed, "remove-destroyed", false, "remove here what was destroyed in the COPY, for ever, with what is stored under it; who can write a COPY can have it say so of any version")
			flags.BoolVar(&config.Unproven, "unproven", false, "take keys from a file of before there were proofs: whoever could write it may have put them there")
		},
		read: func(from string, in io.Reader) (err error) {
			for _, flag := range []string{"adopt-recovery", "remove-destroyed"} {
				if from == "" && command.Flags().Changed(flag) {
					return usagef("flag --%s is of a COPY, and none is given: give its path, or leave the flag out", flag)
				}
			}
			recoveryKey, err = readRecoveryKey(keyPath, in)
			return err
		},
		run: func(ctx context.Context, store *tpm.Store, from string, _ bool) (tpm.KeyInfo, string, error) {
			info, err := store.Recover(ctx, recoveryKey, from)
			return info, "", err
		},
		done: "wraps, and all are sealed under this TPM; " + copyNow,
		also: whatRecovered,
	}.command()
	return command
}

const notTheKey = "it takes the path of a file and never the recovery key itself, which whoever lists processes, or reads the history of the shell, would have: if that was the key, make another one (reseal --recovery)"

// recoverArgs never shows an argument, which may be the recovery key.
func recoverArgs(_ *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return usagef("%d arguments: there is one, the path of a copy of another node's file; the recovery key is read from --recovery-key-file", len(args))
	case len(args) == 1 && args[0] == "":
		return usagef("required and not given: the path of a copy of another node's file")
	}
	return nil
}

// readRecoveryKey reads what may be one. No error shows the path, as somebody may have given
// the key itself.
func readRecoveryKey(path string, stdin io.Reader) (string, error) {
	from := stdin
	switch {
	case path == "":
		return "", usagef("required and not given: --recovery-key-file")
	case path != "-":
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return "", usagef("flag --recovery-key-file: no such file: %s", notTheKey)
		}
		if err != nil {
			return "", usagef("flag --recovery-key-file: %w", withoutPath(err))
		}
		defer file.Close()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, 1024))
	if err != nil {
		return "", usagef("flag --recovery-key-file: %w", withoutPath(err))
	}
	return string(data), nil
}

// withoutPath is the cause of an error of a file.
func withoutPath(err error) error {
	if of := (*fs.PathError)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}

// whatRecovered says what a recovery has changed, and what it has left.
func whatRecovered(before, after tpmFile, from string, config tpm.Config) string {
	if len(after.keys) == 0 {
		return "what changed cannot be told, as the file cannot be read again: \"list\" says why\n"
	}
	var out strings.Builder
	removed := missingIn(after.keys, before.keys)
	for _, info := range removed {
		fmt.Fprintf(&out, "version %s was destroyed in the copy and is removed here for ever, with what is stored under key_id %s\n", info.ID, info.KeyID)
	}
	for _, id := range after.destroyed {
		if !slices.Contains(before.destroyed, id) && !slices.ContainsFunc(removed, func(info tpm.KeyInfo) bool { return info.ID == id }) {
			fmt.Fprintf(&out, "version %s, which was not here, was destroyed in the copy, and no copy brings it here any more\n", id)
		}
	}
	if len(before.keys) == 0 {
		return out.String() + allAreNew(after.keys)
	}
	for _, info := range missingIn(before.keys, after.keys) {
		fmt.Fprintf(&out, "version %s is new here, key_id %s\n", info.ID, info.KeyID)
	}
	there := tpmFileAt(from).keys
	for _, info := range missingIn(there, after.keys) {
		if len(there) > 0 {
			fmt.Fprintf(&out, "version %s, key_id %s, is not in the copy, and stays here: bring a copy of this file to all nodes, so that they read what is under it\n", info.ID, info.KeyID)
		}
	}
	out.WriteString(whatHolds(before.keys[0], after.keys[0], from, config))
	if there, here := writerOf(there), writerOf(after.keys); there != "" && there != here {
		fmt.Fprintf(&out, "in the copy version %s wraps: \"activate %s\" has it wrap here\n", there, there)
	}
	return out.String()
}

// whatHolds says what holds for all keys of a file that was there, of which these are one.
func whatHolds(before, after tpm.KeyInfo, from string, config tpm.Config) string {
	was, is := cmp.Or(before.PCRs, "none"), cmp.Or(after.PCRs, "none")
	pcrs := "PCRs: " + is + ", as before\n"
	switch {
	case was != is:
		pcrs = "PCRs: " + is + ", and no more " + was + "\n"
	case from == "" && config.PCRs == "":
		pcrs = "PCRs: " + is + ", as the file says, which who could write it, as a backup, can have changed: see that they are as they should be (--pcrs)\n"
	}
	switch {
	case from == "":
		return pcrs
	case config.Adopt, !before.Recovery:
		return pcrs + "recovery key: that of the copy from now on\n"
	}
	return pcrs + "recovery key: the one of this file, as before, which need not be that of the copy\n"
}

// allAreNew says what came where there was no file before.
func allAreNew(after []tpm.KeyInfo) string {
	var out strings.Builder
	for _, info := range after {
		wraps := ""
		if info.Writes {
			wraps = ", and wraps"
		}
		fmt.Fprintf(&out, "version %s is new here, key_id %s%s\n", info.ID, info.KeyID, wraps)
	}
	fmt.Fprintf(&out, "PCRs: %s\nrecovery key: that of the copy\n", cmp.Or(after[0].PCRs, "none"))
	out.WriteString("which version wraps, and the PCRs, are as the copy says, which who can write it can change: see that they are as they should be\n")
	return out.String()
}

// missingIn are those of others that some do not have.
func missingIn(some, others []tpm.KeyInfo) []tpm.KeyInfo {
	has := map[string]bool{}
	for _, info := range some {
		has[info.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(others), func(info tpm.KeyInfo) bool { return has[info.ID] })
}

// writerOf is the id of the version that wraps, if there is any.
func writerOf(infos []tpm.KeyInfo) string {
	for _, info := range infos {
		if info.Writes {
			return info.ID
		}
	}
	return ""
}
