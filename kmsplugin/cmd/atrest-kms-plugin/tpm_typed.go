package main

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	// typedKey is what a recovery key looks like, or most of one: hardly a path does, nor an id.
	typedKey = regexp.MustCompile(`^\s*[A-Za-z0-9]{4}([-\s]+[A-Za-z0-9]{4}){3,}|^\s*[A-Za-z2-7]{40,}\s*$`)
	// repeatedKey is an error that has one in it, where the end of a line is written as \n.
	repeatedKey = regexp.MustCompile(`[A-Za-z0-9]{4}(([-\s]|\\[nrt])+[A-Za-z0-9]{4}){3,}|[A-Za-z2-7]{40,}`)
)

// withoutTypedKeys has no command of a group repeat a recovery key that somebody has typed in it,
// wherever: in the log of what runs it, others would find it.
func withoutTypedKeys(of *cobra.Command) *cobra.Command {
	of.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if repeatedKey.MatchString(err.Error()) {
			return usagef("a flag: %s", keyWasTyped)
		}
		return usageError{err}
	})
	for _, command := range append(of.Commands(), of) {
		check := command.Args
		command.Args = func(command *cobra.Command, args []string) error {
			if err := typedKeyIn(command, args); err != nil {
				return err
			}
			return check(command, args)
		}
	}
	return of
}

const keyWasTyped = "what is given looks like the recovery key, which is read from --recovery-key-file alone: whoever lists processes, or reads the history of the shell, has what is typed here: if that was the key, make another one (reseal --recovery), and if it is a path write ./ in front"

// typedKeyIn is an error if an argument may be the recovery key, or all of them together, or what a
// flag was given.
func typedKeyIn(command *cobra.Command, args []string) (err error) {
	if typedKey.MatchString(strings.Join(args, " ")) {
		return usagef("an argument: %s", keyWasTyped)
	}
	for _, arg := range args {
		if typedKey.MatchString(arg) {
			return usagef("an argument: %s", keyWasTyped)
		}
	}
	command.Flags().Visit(func(flag *pflag.Flag) {
		if typedKey.MatchString(flag.Value.String()) {
			err = usagef("flag --%s: %s", flag.Name, keyWasTyped)
		}
	})
	return err
}
