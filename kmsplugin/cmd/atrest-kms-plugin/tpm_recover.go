package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/kmsplugin/tpm"
)

func newTPMRecover() *cobra.Command {
	var keyPath string
	var command *cobra.Command
	command = tpmChange{
		use: "recover [COPY] --key-file PATH --recovery-key-file PATH", short: "Seal all keys under this TPM, with the recovery key",
		args: recoverArgs,
		long: `Open all keys with the recovery key, and seal them under the TPM of this machine:
after the TPM was cleared, the mainboard was replaced or the PCRs changed, or for
another node. They stay the same keys, with the same key_ids.

With a COPY of another node's file its keys are put in this file, or make it; it
is refused if a key of this file would be lost. A file that there is keeps
its PCRs, the version that wraps and its recovery key, which need not be those
of the COPY; one that has no recovery key takes that of the COPY. What
changed is printed.

The recovery key, that of the COPY if there is one, is read from a file, or from
standard input if that is "-".`,
		example: `  atrest-kms-plugin tpm recover --key-file /var/lib/atrest/tpm.json --recovery-key-file -
  atrest-kms-plugin tpm recover /root/tpm-of-cp-1.json --key-file /var/lib/atrest/tpm.json --recovery-key-file -`,
		pcrs: "those it has, or those of the COPY where there is no file",
		flags: func(flags *pflag.FlagSet, config *tpm.Config) {
			flags.StringVar(&keyPath, "recovery-key-file", "", `file with the recovery key, or "-" for standard input (required)`)
			flags.BoolVar(&config.Adopt, "adopt-recovery", false, "have the recovery key of the COPY open this file from now on, and the one it has no more")
		},
		run: func(ctx context.Context, store *tpm.Store, from string, _ bool) (tpm.KeyInfo, string, error) {
			recoveryKey, err := readRecoveryKey(keyPath, command.InOrStdin())
			if err != nil {
				return tpm.KeyInfo{}, "", err
			}
			info, err := store.Recover(ctx, recoveryKey, from)
			return info, "", err
		},
		done: "wraps, and all are sealed under this TPM; " + copyNow,
		also: whatRecovered,
	}.command()
	return command
}

// typedKey is what a recovery key looks like, or most of one: no path does.
var typedKey = regexp.MustCompile(`^\s*[A-Za-z0-9]{4}([- ][A-Za-z0-9]{4}){3,}|^[A-Za-z2-7]{56}$`)

const notTheKey = "it takes the path of a file and never the recovery key itself, which whoever lists processes, or reads the history of the shell, would have: if that was the key, make another one (reseal --recovery)"

// recoverArgs never shows an argument that may be the recovery key.
func recoverArgs(_ *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return usagef("%d arguments: there is one, the path of a copy of another node's file; the recovery key is read from --recovery-key-file", len(args))
	case len(args) == 1 && args[0] == "":
		return usagef("required and not given: the path of a copy of another node's file")
	case len(args) == 1 && typedKey.MatchString(args[0]):
		return usagef("COPY: %s", notTheKey)
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
	case typedKey.MatchString(path):
		return "", usagef("flag --recovery-key-file: %s", notTheKey)
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
func whatRecovered(before, after []tpm.KeyInfo, from string, config tpm.Config) string {
	if len(before) == 0 || len(after) == 0 {
		return ""
	}
	var out strings.Builder
	had := map[string]bool{}
	for _, info := range before {
		had[info.ID] = true
	}
	for _, info := range after {
		if !had[info.ID] {
			fmt.Fprintf(&out, "version %s is new here\n", info.ID)
		}
	}
	if was, is := cmp.Or(before[0].PCRs, "none"), cmp.Or(after[0].PCRs, "none"); was != is {
		fmt.Fprintf(&out, "PCRs: %s, and no more %s\n", is, was)
	} else {
		fmt.Fprintf(&out, "PCRs: %s, as before\n", is)
	}
	switch {
	case from == "":
	case config.Adopt, !before[0].Recovery:
		out.WriteString("recovery key: that of the copy from now on\n")
	default:
		out.WriteString("recovery key: the one of this file, as before, which need not be that of the copy\n")
	}
	if there, here := writerOf(tpmVersions(from)), writerOf(after); there != "" && there != here {
		fmt.Fprintf(&out, "in the copy version %s wraps: \"activate %s\" has it wrap here\n", there, there)
	}
	return out.String()
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
