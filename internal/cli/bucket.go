package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) bucketCommand() *cobra.Command {
	cmd := group("bucket", "Sets of artifacts", a.bucketCreate(), a.bucketList(), a.bucketDelete())
	cmd.Aliases = []string{"buckets"}
	return cmd
}

func (a *app) bucketCreate() *cobra.Command {
	spec, retain := holt.BucketSpec{}, ""
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a bucket", Args: exactly(1), ValidArgsFunction: cobra.NoFileCompletions,
		Example: `  holt bucket create releases --retain 90d
  holt bucket create latest --replace`,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.Name = args[0]
			if retain != "" {
				span, err := parseSpan("retention", retain)
				if err != nil {
					return err
				}
				spec.RetainMS = span.Milliseconds()
			}
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			made, err := c.Artifacts.CreateBucket(cmd.Context(), spec, "")
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, made)
			}
			fmt.Fprintf(a.Out, "bucket %s is created\n", made.Name)
			return nil
		},
	}
	cmd.Flags().BoolVar(&spec.Replace, "replace", false, "a new artifact replaces the earlier one of its name (default: both are kept, as versions)")
	cmd.Flags().StringVar(&retain, "retain", "", "retention of new artifacts, such as 90d: a delete is refused for this time")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) bucketList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List buckets", Args: exactly(0), Example: "  holt bucket list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			all, err := c.Artifacts.Buckets(cmd.Context())
			switch {
			case err != nil:
				return err
			case a.wantsJSON():
				return printJSON(a.Out, all)
			case len(all) == 0:
				a.say("no buckets; the first is created with: holt artifact publish COMPUTER:PATH")
				return nil
			}
			rows := make([][]string, len(all))
			for i, b := range all {
				versions, retain := "kept", "-"
				if b.Replace {
					versions = "replaced"
				}
				if b.RetainMS > 0 {
					retain = holt.ShortMS(b.RetainMS)
				}
				rows[i] = []string{b.Name, fmt.Sprint(b.Artifacts), size(b.Bytes), versions, retain, ago(b.CreatedAt)}
			}
			return printTable(a.Out, []string{"BUCKET", "ARTIFACTS", "SIZE", "VERSIONS", "RETAINED FOR", "CREATED"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) bucketDelete() *cobra.Command {
	return a.deletes(&cobra.Command{Use: "delete BUCKET...", Short: "Delete an empty bucket", Example: "  holt bucket delete releases"}, bucketNames,
		func(ctx context.Context, c *client.Client, ref string) error {
			return c.Artifacts.DeleteBucket(ctx, ref, "")
		})
}

func bucketNames(ctx context.Context, c *client.Client) (out []string) {
	all, _ := c.Artifacts.Buckets(ctx) // no daemon, no names
	for _, b := range all {
		out = append(out, b.Name)
	}
	return out
}
