package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// lockTimeout is how long a change waits for another one, which takes
// milliseconds.
const lockTimeout = 10 * time.Second

// A change changes the key file, and tells of one version of it.
type change struct {
	use, short, long, example string
	// takes says what the argument is, if there is one, and optional that it may be left
	// away.
	takes    string
	optional bool
	run      func(ctx context.Context, file *keyfile.File, argument string) (keyfile.KeyInfo, error)
	// done says what became of the version, of the file at a path.
	done string
}

func (c change) command() *cobra.Command {
	var keyFile string
	command := &cobra.Command{
		Use: c.use, Short: c.short, Example: c.example,
		Long: c.long + `

Run it as the owner of the file. A plugin that serves from the file notices
within a second. The key_id goes to standard output, alone.`,
		Args: c.args,
		RunE: func(command *cobra.Command, args []string) error {
			if err := requireFlags(command, "key-file"); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(command.Context(), lockTimeout)
			defer cancel()
			info, err := c.run(ctx, keyfile.At(keyFile), append(args, "")[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(command.ErrOrStderr(), "%s: version %s %s\n", keyFile, info.ID, c.done)
			_, err = fmt.Fprintln(command.OutOrStdout(), info.KeyID)
			return err
		},
	}
	keyFileFlag(command, &keyFile)
	return command
}

func (c change) args(_ *cobra.Command, args []string) error {
	switch {
	case c.takes == "":
		return noArgs(nil, args)
	case len(args) > 1:
		return unexpected(args, "unexpected argument %q: there is one, %s", args[1], c.takes)
	case len(args) == 0 && !c.optional, len(args) == 1 && args[0] == "":
		return usagef("required and not given: %s", c.takes)
	}
	return nil
}

// another is an error if other is the file itself, which nobody may be told to remove.
func another(file *keyfile.File, other string) error {
	this, err := os.Stat(file.Path())
	if err != nil {
		return nil // there is none
	}
	if that, err := os.Stat(other); err == nil && os.SameFile(this, that) {
		return usagef("%s is the key file itself: name a copy of another node's", other)
	}
	return nil
}

const copyNow = "copy the file now, as values will need it"

func newCreate() *cobra.Command {
	return change{
		use: "create --key-file PATH", short: "Make a key file with one key",
		long:    `Make a key file with one key. What is at the path stays, whatever it is.`,
		example: `  atrest-kms-plugin keyfile create --key-file /var/lib/atrest/kek.json`,
		run: func(ctx context.Context, file *keyfile.File, _ string) (keyfile.KeyInfo, error) {
			info, err := file.Create(ctx)
			if errors.Is(err, fs.ErrNotExist) { // the folder: no key file was looked for
				err = usageError{err}
			}
			return info, err
		},
		done: "wraps; " + copyNow + ", and away from copies of etcd",
	}.command()
}

func newRotate() *cobra.Command {
	return change{
		use: "rotate --key-file PATH", short: "Add a key that wraps from now on, while the plugin serves",
		long: `Add a key that wraps from now on; all older ones stay readable.

With several nodes use stage, import and activate: until the others have the new
key they cannot read what this node writes.`,
		example: `  atrest-kms-plugin keyfile rotate --key-file /var/lib/atrest/kek.json`,
		run: func(ctx context.Context, file *keyfile.File, _ string) (keyfile.KeyInfo, error) {
			return file.Rotate(ctx)
		},
		done: "wraps from now on; " + copyNow,
	}.command()
}

func newStage() *cobra.Command {
	return change{
		use: "stage --key-file PATH", short: "Add a key that only unwraps, until it is activated",
		long: `Add a key that only unwraps.

It is the first step of a rotation of several nodes: import a copy of this file
on each of the others then, and activate the key on each once all have it.`,
		example: `  atrest-kms-plugin keyfile stage --key-file /var/lib/atrest/kek.json`,
		run: func(ctx context.Context, file *keyfile.File, _ string) (keyfile.KeyInfo, error) {
			return file.Stage(ctx)
		},
		done: "unwraps from now on; bring it to all nodes, then activate it on each",
	}.command()
}

func newActivate() *cobra.Command {
	return change{
		use: "activate [ID] --key-file PATH", short: "Have another key of the file wrap",
		long: `Have another key of the file wrap from now on: the newest, or the one whose
ID or key_id begins as it is given.

Be sure that all nodes have it: "list" there shows it.`,
		example: `  atrest-kms-plugin keyfile activate --key-file /var/lib/atrest/kek.json
  atrest-kms-plugin keyfile activate 0f3a91 --key-file /var/lib/atrest/kek.json`,
		takes: "the beginning of an ID or key_id", optional: true,
		run: func(ctx context.Context, file *keyfile.File, id string) (keyfile.KeyInfo, error) {
			return file.Activate(ctx, id)
		},
		done: "wraps from now on",
	}.command()
}

func newMerge() *cobra.Command {
	return change{
		use: "merge OTHER --key-file PATH", short: "Add the keys of another key file",
		long: `Add the keys of another key file, so that what either wrote is read.

It heals nodes that were rotated apart: copy each one's file to the other, and
merge it there. Both have the same file then. Of the two keys that wrapped, the
one that was made later does.`,
		example: `  atrest-kms-plugin keyfile merge ./kek-of-cp-2.json --key-file /var/lib/atrest/kek.json`,
		takes:   "the path of the other key file",
		run: func(ctx context.Context, file *keyfile.File, other string) (keyfile.KeyInfo, error) {
			if err := another(file, other); err != nil {
				return keyfile.KeyInfo{}, err
			}
			return file.Merge(ctx, other)
		},
		done: "wraps; remove the other file where nothing needs it",
	}.command()
}

func newImport() *cobra.Command {
	return change{
		use: "import FILE --key-file PATH", short: "Put a copy of another key file in the place of this one",
		long: `Put a copy of another key file in the place of this one, or where there is none
yet: use it instead of cp. It is private and on the disk before it takes
the place, in one step, and it is refused if a key of this one would be lost.`,
		example: `  atrest-kms-plugin keyfile import ./kek-of-cp-1.json --key-file /var/lib/atrest/kek.json`,
		takes:   "the path of the file to copy",
		run: func(ctx context.Context, file *keyfile.File, other string) (keyfile.KeyInfo, error) {
			if err := another(file, other); err != nil {
				return keyfile.KeyInfo{}, err
			}
			return file.Import(ctx, other)
		},
		done: "wraps; remove the file that was copied where nothing needs it",
	}.command()
}
