//go:build cgo

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// The page of a back end names the flags of its commands, each where it is that command's, and no
// flag that there is not; of those that every back end has docs/operations.md may tell. What follows the name of another program is that program's.
func TestThePagesHaveTheFlagsOfTheirCommands(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(text)
	}
	everywhere := read("../../../docs/operations.md")
	for path, group := range map[string]*cobra.Command{
		"../../../docs/plugins/pkcs11.md": newPKCS11Group(),
		"../../../docs/plugins/tpm.md":    newTPMGroup(),
	} {
		page := strings.ReplaceAll(read(path), "\\\n", " ")
		all := map[string]string{} // and how a page may name it
		for _, command := range group.Commands() {
			command.Flags().VisitAll(func(f *pflag.Flag) {
				all[f.Name] = "--" + f.Name + "\\b"
				if f.Shorthand != "" {
					all[f.Name] += "|`-" + f.Shorthand + "\\b| -" + f.Shorthand + " "
				}
			})
		}
		for _, line := range flagsWithCommands(group.Name(), page) {
			if line.command == "" {
				require.NotEmpty(t, all[line.flag], "%s: --%s is a flag of no command", path, line.flag)
				continue
			}
			command, _, err := group.Find([]string{line.command})
			require.NoError(t, err, path)
			require.NotNil(t, command.Flags().Lookup(line.flag), "%s: --%s is no flag of %s", path, line.flag, line.command)
		}
		var untold []string
		for flag, names := range all {
			if !regexp.MustCompile(names).MatchString(page + everywhere) {
				untold = append(untold, flag)
			}
		}
		require.Empty(t, untold, "%s has nothing of these flags", path)
	}
}

// What is in /run is gone after a boot, and with a unit that ends, with the sockets of other plugins, unless
// it is told to leave it.
func TestEachUnitMakesTheFolderOfItsSocketAtEachBoot(t *testing.T) {
	units := 0
	require.NoError(t, filepath.WalkDir("../../../docs", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, unit := range regexp.MustCompile("(?s)```ini\\n.*?```").FindAllString(string(page), -1) {
			folder := regexp.MustCompile(`--listen unix:///run/([a-z]+)/`).FindStringSubmatch(unit)
			if folder == nil {
				continue
			}
			units++
			require.Contains(t, unit, "RuntimeDirectory="+folder[1]+"\n", path)
			require.Contains(t, unit, "RuntimeDirectoryPreserve=yes\n", path)
		}
		return nil
	}))
	require.GreaterOrEqual(t, units, 3)
}

// A flagOf is a flag in a page, and the command that it follows, if it follows one.
type flagOf struct{ command, flag string }

// flagsWithCommands are those of a group in a page.
func flagsWithCommands(group, page string) (found []flagOf) {
	others := regexp.MustCompile("(softhsm2-util|pkcs11-tool|tpm2_\\w+|atrest conform)[^\\n`]*")
	page = others.ReplaceAllString(page, "")
	verb := regexp.MustCompile(`(?:^|atrest-kms-plugin )` + group + ` ([a-z]+)|^(reseal|create|list|recover|rotate) `)
	flag := regexp.MustCompile(`--([a-z][a-z-]*)`)
	for _, part := range regexp.MustCompile("[\\n`]").Split(page, -1) {
		command := ""
		if m := verb.FindStringSubmatch(strings.TrimSpace(part)); m != nil {
			command = m[1] + m[2]
		}
		for _, m := range flag.FindAllStringSubmatch(part, -1) {
			if m[1] == "encryption-provider-config" || m[1] == "help" {
				continue
			}
			found = append(found, flagOf{command, m[1]})
		}
	}
	return found
}
