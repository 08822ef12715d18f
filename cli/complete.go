package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"holt/client"
)

// names asks the daemon for what can stand in an argument's place.
type names func(context.Context, *client.Client) []string

// complete makes a shell completion for the first argument. The daemon has a
// second to answer; a shell must not hang.
func (a *app) complete(ask names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return a.ask(cmd, ask), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag does the same for a flag's value.
func (a *app) completeFlag(cmd *cobra.Command, flag string, ask names) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.ask(cmd, ask), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag's name is misspelt
	}
}

func (a *app) ask(cmd *cobra.Command, ask names) []string {
	c, err := a.connect()
	if err != nil {
		return nil
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return ask(ctx, c)
}

func (a *app) computerNames(ctx context.Context, c *client.Client) []string {
	all, _ := c.Computers.List(ctx) // no daemon, no names
	var out []string
	for _, one := range all {
		out = append(out, one.Name+"\t"+string(one.State))
	}
	return out
}

func (a *app) workspaceNames(ctx context.Context, c *client.Client) []string {
	all, _ := c.Workspaces.List(ctx)
	var out []string
	for _, one := range all {
		out = append(out, one.Name)
	}
	return out
}

func (a *app) templateNames(ctx context.Context, c *client.Client) []string {
	all, _ := c.Images.List(ctx)
	var out []string
	for _, one := range all {
		out = append(out, one.Template) // twice, where an older build of it is still there
	}
	slices.Sort(out)
	return slices.Compact(out)
}
