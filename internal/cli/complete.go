package cli

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holt"
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

// completeSecond completes the first argument, then the second with what the first has.
func (a *app) completeSecond(first names, second func(of string) names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return a.ask(cmd, second(args[0])), cobra.ShellCompDirectiveNoFileComp
		}
		return a.complete(first)(cmd, args, typed)
	}
}

// completeAll completes each argument with what is not among the others yet.
func (a *app) completeAll(ask names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return slices.DeleteFunc(a.ask(cmd, ask), func(one string) bool {
			name, _, _ := strings.Cut(one, "\t")
			return slices.Contains(args, name)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeSpots completes NAME:PATH, with what lies there now, in the first n
// arguments. What looks like a path here is left to the shell.
func (a *app) completeSpots(noun copyNoun, n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		name, p, inside := strings.Cut(typed, ":")
		if len(args) >= n || strings.ContainsRune(name, '/') {
			return nil, cobra.ShellCompDirectiveDefault
		}
		if inside {
			return a.ask(cmd, noun.entries(name, p)), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
		}
		list := a.workspaceNames
		if noun == inComputers {
			list = a.computerNames
		}
		var out []string
		for _, one := range a.ask(cmd, list) {
			one, _, _ = strings.Cut(one, "\t")
			out = append(out, one+":")
		}
		return out, cobra.ShellCompDirectiveNoSpace
	}
}

// entries lists the directory that a half-typed path leads into. No computer is
// started for it.
func (n copyNoun) entries(name, typed string) names {
	return func(ctx context.Context, c *client.Client) (out []string) {
		dir, prefix := path.Split(typed)
		at := dir
		if !path.IsAbs(at) {
			at = path.Join(n.home, at)
		}
		if n == inComputers && !strings.HasPrefix(at+"/", n.home+"/") {
			if got, err := c.Computers.Get(ctx, name); err != nil || got.State != holt.ComputerRunning {
				return nil
			}
		}
		for list := range n.files(c).Pages(ctx, name, at) { // nil with an error
			for _, f := range list {
				entry := string(f.Name)
				if !strings.HasPrefix(entry, prefix) || visible(entry) != entry || strings.ContainsAny(entry, "\t\n \uFFFD") { // a shell would take it apart
					continue
				}
				if f.Kind == "dir" {
					entry += "/"
				}
				out = append(out, name+":"+dir+entry)
			}
			if len(out) >= mostCompletions {
				break
			}
		}
		return out
	}
}

// mostCompletions is more than anybody reads.
const mostCompletions = 1000

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
