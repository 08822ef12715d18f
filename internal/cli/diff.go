package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) workspaceDiff() *cobra.Command {
	var spec holt.DiffSpec
	var text, stat bool
	cmd := a.onPast("diff NAME[:PATH] [FROM [TO]]", "Show what changed in a workspace", 1, 3, func(ctx context.Context, c *client.Client, args []string) error {
		at, err := parseSpot(args[0])
		if err != nil {
			return err
		}
		for i, into := range []*string{&spec.From, &spec.To} {
			if len(args) > i+1 {
				if *into != "" {
					return holt.Errorf(holt.InvalidArgument, "%q is given as an argument and as a flag", args[i+1]).WithHint("use only one of them")
				}
				*into = args[i+1]
			}
		}
		for i, p := range spec.Paths {
			spec.Paths[i] = "/" + strings.TrimPrefix(p, "/")
		}
		if at.path != "/" {
			spec.Paths = append(spec.Paths, at.path)
		}
		if text && stat {
			return holt.Errorf(holt.InvalidArgument, "--text and --stat exclude each other").WithHint("use only one of them")
		}
		if spec, err = c.History.DiffPoints(ctx, at.workspace, spec); err != nil {
			return err
		}
		if isTerminal(a.Out) {
			a.say("from %s to %s", visible(spec.From), visible(spec.To))
		}
		switch {
		case text:
			return a.textDiff(ctx, c, at.workspace, spec)
		case stat:
			return a.diffStat(ctx, c, at.workspace, spec)
		}
		return a.changes(ctx, c, at.workspace, spec)
	})
	cmd.Long = `Shows the differences between two checkpoints, or between a checkpoint and the current state,
which is called live. FROM defaults to the last checkpoint with a name, or else to the oldest; TO
defaults to live. The output lists deleted files, then renamed, created and changed ones, then those
with changed metadata only. Files below a renamed directory do not count as changed. The output is
always complete: if more than 2,000,000 files differ, the command fails (too_many). A path that exists
in neither state is an error.`
	cmd.Example = `  holt workspace diff einstein
  holt workspace diff einstein:src before-upgrade --text
  holt workspace diff einstein auto-12 auto-13 --stat`
	f := cmd.Flags()
	f.StringVar(&spec.From, "from", "", "the older checkpoint")
	f.StringVar(&spec.To, "to", "", "the newer checkpoint")
	f.StringArrayVar((*[]string)(&spec.Paths), "path", nil, "only files at or below this path (repeatable)")
	f.BoolVar(&text, "text", false, "show unified diffs of text files")
	f.BoolVar(&stat, "stat", false, "show only counts")
	return cmd
}

// changes prints them as they come.
func (a *app) changes(ctx context.Context, c *client.Client, workspace string, spec holt.DiffSpec) error {
	if a.wantsJSON() {
		return a.changesJSON(ctx, c, workspace, spec)
	}
	n := 0
	err := c.History.Diff(ctx, workspace, spec, func(change holt.Change) error {
		n++
		_, err := fmt.Fprintln(a.Out, a.changeLine(a.Out, change))
		return err
	})
	if err == nil && n == 0 {
		a.say("no differences")
	}
	return err
}

// changesJSON prints an array whose end is missing if the daemon fails.
func (a *app) changesJSON(ctx context.Context, c *client.Client, workspace string, spec holt.DiffSpec) error {
	between := "[\n"
	err := c.History.Diff(ctx, workspace, spec, func(change holt.Change) error {
		var line bytes.Buffer
		line.WriteString(between + "  ")
		between = ",\n"
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(change); err != nil {
			return err
		}
		_, err := a.Out.Write(bytes.TrimSuffix(line.Bytes(), []byte("\n")))
		return err
	})
	if err != nil {
		return err
	}
	end := "\n]\n"
	if between == "[\n" {
		end = "[]\n"
	}
	_, err = io.WriteString(a.Out, end)
	return err
}

// changeLine says one change as a person reads it.
func (a *app) changeLine(to io.Writer, c holt.Change) string {
	colour := yellow
	switch c.Kind {
	case holt.ChangeDeleted:
		colour = red
	case holt.ChangeCreated:
		colour = green
	}
	path := shown(c.Path)
	if c.Type == "dir" && path != "/" {
		path += "/"
	}
	if c.From != "" {
		path = shown(c.From) + " -> " + path
	}
	line := a.paint(to, colour, fmt.Sprintf("%-8s", c.Kind)) + "  " + path
	if c.Type == "file" && c.Kind != holt.ChangeDeleted && (c.Kind != holt.ChangeRenamed || c.Content) && c.Kind != holt.ChangeMetadata {
		line += "  " + size(c.SizeAfter)
	}
	if by := writerName(c.By); by != "" {
		line += "  by " + by
	}
	return line
}

// writerName names who made a change: a run by its id, one of a schedule by both.
func writerName(w holt.Writer) string {
	if w.Kind == "schedule" && w.Run != "" {
		return "schedule " + visible(w.Name) + ", " + visible(w.Run)
	}
	if w.Run != "" {
		return visible(w.Run)
	}
	return visible(w.Name)
}

func countsLine(n holt.Counts) string {
	var parts []string
	for _, p := range []struct {
		n    int
		word string
	}{{n.Deleted, "deleted"}, {n.Renamed, "renamed"}, {n.Created, "created"}, {n.Changed, "changed"}, {n.Metadata, "with other metadata"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.word))
		}
	}
	if len(parts) == 0 {
		return "no changes"
	}
	line := strings.Join(parts, ", ")
	if n.Created+n.Changed > 0 {
		line += "; " + size(n.Bytes) + " in what was created or changed"
	}
	return line
}

func (a *app) diffStat(ctx context.Context, c *client.Client, workspace string, spec holt.DiffSpec) error {
	var counts holt.Counts
	err := c.History.Diff(ctx, workspace, spec, func(change holt.Change) error { counts.Add(change); return nil })
	if err != nil {
		return err
	}
	if a.wantsJSON() {
		return printJSON(a.Out, counts)
	}
	_, err = fmt.Fprintln(a.Out, countsLine(counts))
	return err
}

// textDiff passes diffs on.
func (a *app) textDiff(ctx context.Context, c *client.Client, workspace string, spec holt.DiffSpec) error {
	if a.json {
		return holt.Errorf(holt.InvalidArgument, "--text and --json exclude each other").WithHint("use only one of them")
	}
	return c.History.TextDiff(ctx, workspace, spec, a.forContent())
}
