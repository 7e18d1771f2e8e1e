package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	// someGroups is a recovery key in its groups, or some of it: hardly a path begins so.
	someGroups = regexp.MustCompile(`^\s*[A-Za-z0-9]{4}([-\s]+[A-Za-z0-9]{4}){3,}`)
	// mostOfKey is most of a recovery key, as "recover" reads it: in groups of other sizes too, or in
	// none, and with the digits that look like letters. In an error the end of a line is \n.
	mostOfKey = regexp.MustCompile(`([A-Za-z0-8]{4}([-\s\x{2010}-\x{2014}]|\\[nrt])*){10,}`)
	// hexadecimal is a key_id, or another digest.
	hexadecimal = regexp.MustCompile(`^[0-9a-fA-F\W]*$`)
	// groupsWithin is an error that has some groups in it.
	groupsWithin = regexp.MustCompile(`[A-Za-z0-9]{4}(([-\s]|\\[nrt])+[A-Za-z0-9]{4}){3,}`)
	// names are the flags that take what somebody has called something, in groups or not.
	names = map[string]bool{"instance": true, "group": true, "pin": true}
)

// hasMostOfKey tells if most of a recovery key is in a text.
func hasMostOfKey(text string) bool {
	return slices.ContainsFunc(mostOfKey.FindAllString(text, -1), func(found string) bool { return !hexadecimal.MatchString(found) })
}

// isTypedKey tells if what was typed looks like a recovery key, or like some of it unless it is a name.
// What follows a / is the name of a file.
func isTypedKey(text string, name bool) bool {
	head, _, _ := strings.Cut(text, "/")
	return hasMostOfKey(head) || !name && someGroups.MatchString(text)
}

// withoutTypedKeys has no command of a group go on with a recovery key that somebody has typed in it,
// wherever, nor repeat it: in the log of what runs it others would find it.
func withoutTypedKeys(of *cobra.Command) *cobra.Command {
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

// ofFlag is an error of a flag, which repeats no recovery key.
func ofFlag(_ *cobra.Command, err error) error {
	if hasMostOfKey(err.Error()) || groupsWithin.MatchString(err.Error()) {
		return usagef("a flag: %s", keyWasTyped)
	}
	return usageError{err}
}

// unexpected is an error of an argument, which repeats none of them if they may be the recovery key.
func unexpected(args []string, format string, of ...any) error {
	if err := typedArgument(args); err != nil {
		return err
	}
	return usagef(format, of...)
}

const keyWasTyped = "what is given looks like the recovery key, which is read from --recovery-key-file alone: whoever lists processes, or reads the history of the shell, has what is typed here: if that was the key, make another one (reseal --recovery), and if it is a path write ./ in front"

// typedKeyIn is an error if an argument may be the recovery key, or all of them together, or what a
// flag was given.
func typedKeyIn(command *cobra.Command, args []string) error {
	err := typedArgument(args)
	command.Flags().Visit(func(flag *pflag.Flag) {
		if isTypedKey(flag.Value.String(), names[flag.Name]) {
			err = usagef("flag --%s: %s", flag.Name, keyWasTyped)
		}
	})
	return err
}

func typedArgument(args []string) error {
	for _, arg := range append([]string{strings.Join(args, " ")}, args...) {
		if isTypedKey(arg, false) {
			return usagef("an argument: %s", keyWasTyped)
		}
	}
	return nil
}
