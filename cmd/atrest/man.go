package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const manHelp = `Write the man pages of atrest and its commands into a folder, which is made if need
be. It is for those who package atrest: atrest man /usr/share/man/man1.

Exit codes:
  0  written
  2  wrong arguments, or the folder cannot be written to`

// newMan is hidden, as operators have no use for it.
func newMan(s streams) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the man pages into a folder",
		Long:    manHelp,
		Example: "  atrest man /usr/share/man/man1",
		Hidden:  true,
		Args:    arguments(1, "the folder"),
		RunE: func(command *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("man pages: %w", err)
			}
			info, _ := debug.ReadBuildInfo()
			written, err := writePages(args[0], command.Root(), thisVersion(info).Version)
			if err == nil {
				fmt.Fprintf(s.err, "%s written to %s\n", counted(written, "man page"), args[0])
			}
			return err
		},
	}
}

// writePages writes the page of a command and of those below it.
func writePages(folder string, c *cobra.Command, version string) (written int, err error) {
	if c.Hidden {
		return 0, nil
	}
	path := filepath.Join(folder, pageName(c)+".1")
	if err := os.WriteFile(path, []byte(page(c, version)), 0o644); err != nil {
		return 0, fmt.Errorf("man pages: %w", err)
	}
	written = 1
	for _, below := range c.Commands() {
		n, err := writePages(folder, below, version)
		if err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// pageName is atrest-rotate for atrest rotate.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// page is the man page of a command, in the macros of man(7). The texts are lines of
// their own there, as they are in the help.
func page(c *cobra.Command, version string) string {
	c.InitDefaultHelpFlag()
	text := fmt.Sprintf(".TH %q 1 \"\" \"atrest %s\" \"atrest\"\n", strings.ToUpper(pageName(c)), roff(version))
	text += ".SH NAME\n" + roff(pageName(c)) + " \\- " + roff(lowered(c.Short)) + "\n"
	text += ".SH SYNOPSIS\n.B " + roff(c.UseLine()) + "\n"
	text += ".SH DESCRIPTION\n" + verbatim(c.Long)
	options := ""
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			options += option(f)
		}
	})
	text += ".SH OPTIONS\n" + options
	if c.Example != "" {
		text += ".SH EXAMPLES\n" + verbatim(c.Example)
	}
	return text + seeAlso(c)
}

func option(f *pflag.Flag) string {
	kind, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if kind != "" {
		kind = " \\fI" + roff(kind) + "\\fR"
	}
	switch f.DefValue {
	case "", "false", "[]", "0", "0s":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	return ".TP\n\\fB" + roff(name) + "\\fR" + kind + "\n" + roff(usage) + "\n"
}

// seeAlso names the command above and those below.
func seeAlso(c *cobra.Command) string {
	var pages []string
	if c.HasParent() {
		pages = append(pages, pageName(c.Parent()))
	}
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() {
			pages = append(pages, pageName(below))
		}
	}
	text := ".SH SEE ALSO\n"
	for i, name := range pages {
		end := ","
		if i == len(pages)-1 {
			end = ""
		}
		text += ".BR " + roff(name) + " (1)" + end + "\n"
	}
	return text
}

// verbatim keeps the lines of a text as they are.
func verbatim(text string) string {
	return ".nf\n" + roff(strings.Trim(text, "\n")) + "\n.fi\n"
}

// roff is a text without anything that means something to the formatter.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// lowered begins with a small letter, as what a name stands for does.
func lowered(text string) string { return strings.ToLower(text[:1]) + text[1:] }
