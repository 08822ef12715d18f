package cli

import (
	"github.com/spf13/cobra"

	"holt"
)

// completionCommand prints what makes a shell complete holt's commands, flags and names.
func (a *app) completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Print what makes a shell complete commands, flags and names", Args: exactly(1),
		Long: `Prints a script for the shell. With it Tab completes commands and flags, and asks the daemon
for names: of computers, workspaces, snapshots, templates, terminals, runs, schedules, services,
jobs, checkpoints, and of files after NAME:. A daemon that does not answer within a second is not
waited for. The Debian package has installed all three; otherwise:

  bash   holt completion bash > ~/.local/share/bash-completion/completions/holt
         (the package bash-completion must be installed)
  zsh    holt completion zsh > "${fpath[1]}/_holt"
         (and, once, in ~/.zshrc: autoload -U compinit; compinit)
  fish   holt completion fish > ~/.config/fish/completions/holt.fish

A new shell has it then. For this one only: source <(holt completion bash), in fish
holt completion fish | source`,
		Example:   `  source <(holt completion bash)`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Out, true)
			case "zsh":
				return root.GenZshCompletion(a.Out)
			case "fish":
				return root.GenFishCompletion(a.Out, true)
			}
			return holt.Errorf(holt.InvalidArgument, "there is no completion for %q", args[0]).WithHint("shells are bash, zsh and fish")
		},
	}
	return cmd
}
