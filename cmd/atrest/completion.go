package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
)

const completionHelp = `Print a script that has a shell complete the commands and flags of atrest, and the
contexts of the kubeconfig for --apiservers and --context.

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

// completeValues has a shell know what flags take: formats, and the contexts of the kubeconfig.
func completeValues(command *cobra.Command) {
	if command.Flags().Lookup("output") != nil {
		// Its only error is that there is no such flag.
		_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	}
	for flag, complete := range map[string]cobra.CompletionFunc{"context": oneContext, "apiservers": someContexts} {
		if command.Flags().Lookup(flag) != nil {
			_ = command.RegisterFlagCompletionFunc(flag, complete)
		}
	}
	for _, below := range command.Commands() {
		completeValues(below)
	}
}

// contexts are those of the kubeconfig that the command line so far leads to; none if it
// cannot be read, which the command itself then says.
func contexts(command *cobra.Command) []string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.WarnIfAllMissing = false
	if flag := command.Flags().Lookup("kubeconfig"); flag != nil {
		rules.ExplicitPath = flag.Value.String()
	}
	loaded, err := rules.Load()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(loaded.Contexts))
}

func oneContext(command *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return contexts(command), cobra.ShellCompDirectiveNoFileComp
}

// someContexts completes the last part of those by commas, with a context that is not
// among the others.
func someContexts(command *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndex(typed, ",")+1]
	named := strings.Split(before, ",")
	all := contexts(command)
	if before == "" && !slices.Contains(all, everyApiserver) {
		all = append(all, everyApiserver)
	}
	var offered []cobra.Completion
	for _, name := range all {
		if !slices.Contains(named, name) {
			offered = append(offered, before+name)
		}
	}
	return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
