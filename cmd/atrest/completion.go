package main

import (
	"strings"

	"github.com/spf13/cobra"
)

const completionHelp = `Print a script that has a shell complete the commands and flags of atrest.

  bash        source <(atrest completion bash)
              for good: atrest completion bash > /etc/bash_completion.d/atrest
              It needs the package bash-completion.
  zsh         source <(atrest completion zsh)
              for good: atrest completion zsh > "${fpath[1]}/_atrest"
              It needs: autoload -U compinit; compinit
  fish        atrest completion fish | source
              for good: atrest completion fish > ~/.config/fish/completions/atrest.fish
  powershell  atrest completion powershell | Out-String | Invoke-Expression
              for good: put that into the file $PROFILE

A shell that runs has to be started anew for what is there for good.

Exit codes:
  0  printed
  2  no such shell`

// shells are those that a script can be made for.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func newCompletion(s streams) *cobra.Command {
	return &cobra.Command{
		Use:       "completion " + strings.Join(shells, "|"),
		Short:     "Print a script by which a shell completes commands and flags",
		Long:      completionHelp,
		Example:   "  source <(atrest completion bash)",
		ValidArgs: shells,
		Args:      arguments(1, "the shell: "+strings.Join(shells, ", ")),
		RunE: func(command *cobra.Command, args []string) error {
			root := command.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(s.out, true)
			case "zsh":
				return root.GenZshCompletion(s.out)
			case "fish":
				return root.GenFishCompletion(s.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(s.out)
			}
			return usagef("no shell %q: there are %s", args[0], strings.Join(shells, ", "))
		},
	}
}

// newHelp is help COMMAND, which is COMMAND --help.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Say what a command is for, and what its flags are",
		Long:  "Say what a command is for, and what its flags are. It is the same as COMMAND --help.",
		ValidArgsFunction: func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			of, _, err := command.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return strings.Split(commandsOf(of), ", "), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(command *cobra.Command, args []string) error {
			of, rest, err := command.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("no command %q: there are %s", strings.Join(args, " "), commandsOf(command.Root()))
			}
			of.InitDefaultHelpFlag() // which is among the flags that are printed
			return of.Help()
		},
	}
}

// completeOutputs has a shell know what --output takes.
func completeOutputs(command *cobra.Command) {
	if command.Flags().Lookup("output") != nil {
		// Its only error is that there is no such flag.
		_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	}
	for _, below := range command.Commands() {
		completeOutputs(below)
	}
}
