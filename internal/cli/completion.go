package cli

import (
	"github.com/spf13/cobra"

	"holt"
)

// completionCommand prints what makes a shell complete holt's commands, flags and names.
func (a *app) completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Print a shell's completion script", Args: exactly(1),
		Long: `Prints a completion script for the shell. Tab then completes commands, flags, and names that the
daemon knows: computers, workspaces, snapshots, templates, terminals, runs, schedules, services,
jobs, checkpoints, and files after NAME:. Completion waits one second for the daemon at most. The
Debian package installs the scripts of all three shells; otherwise:

  bash   holt completion bash > ~/.local/share/bash-completion/completions/holt
         (the package bash-completion must be installed)
  zsh    holt completion zsh > "${fpath[1]}/_holt"
         (and, once, in ~/.zshrc: autoload -U compinit; compinit)
  fish   holt completion fish > ~/.config/fish/completions/holt.fish

New shells then have completion. For the current shell only: source <(holt completion bash), or in
fish: holt completion fish | source`,
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
			return holt.Errorf(holt.InvalidArgument, "no completion for the shell %q", args[0]).WithHint("use bash, zsh or fish")
		},
	}
	return cmd
}
