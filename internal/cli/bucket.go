package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holt"
	"holt/client"
)

func (a *app) bucketCommand() *cobra.Command {
	cmd := group("bucket", "Sets of artifacts", a.bucketCreate(), a.bucketSet(), a.bucketShow(), a.bucketList(), a.bucketDelete())
	cmd.Aliases = []string{"buckets"}
	return cmd
}

// bucketFlags are the settings of a bucket.
type bucketFlags struct {
	replace                           bool
	retain, expire, keep, quota, scan string
}

func (f *bucketFlags) register(a *app, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.replace, "replace", false, "a new artifact replaces the earlier one of its name (default: both are kept, as versions)")
	flags.StringVar(&f.retain, "retain", "", "retention of new artifacts, such as 90d: a delete is refused for this time")
	flags.StringVar(&f.expire, "expire", "", "delete artifacts that are older than this, such as 30d")
	flags.StringVar(&f.keep, "keep", "", "number of versions of a name to keep, at most 1000; older ones are deleted")
	flags.StringVar(&f.quota, "quota", "", "maximum of its bytes, such as 10GB (units of 1024), all versions counted")
	flags.StringVar(&f.scan, "scan", "", "command of the host (absolute path, arguments) or URL that scans new artifacts before they appear; needs an admin")
	a.jsonFlag(cmd)
}

// change is what the flags say.
func (f *bucketFlags) change(cmd *cobra.Command) (c holt.BucketChange, err error) {
	time := func(what, s string) *int64 {
		ms := int64(0)
		if s != "none" && err == nil {
			span, bad := parseSpan(what, s)
			ms, err = span.Milliseconds(), bad
		}
		return &ms
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "replace":
			c.Replace = &f.replace
		case "retain":
			c.RetainMS = time("retention", f.retain)
		case "expire":
			c.ExpireMS = time("expiry", f.expire)
		case "keep":
			n, bad := strconv.Atoi(f.keep)
			if bad != nil && f.keep != "none" {
				err = holt.Errorf(holt.InvalidArgument, "%q is not a number of versions", f.keep).WithHint("use 1 to %d, or none to keep all", holt.MostBucketKeep)
			}
			c.Keep = &n
		case "quota":
			bytes, bad := parseSize(f.quota)
			mb := (bytes + 1<<20 - 1) >> 20
			c.QuotaMB, err = &mb, cmp.Or(err, bad)
		case "scan":
			if f.scan == "none" {
				f.scan = ""
			}
			c.Scan = &f.scan
		}
	})
	return c, err
}

func (a *app) bucketCreate() *cobra.Command {
	var f bucketFlags
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a bucket", Args: exactly(1), ValidArgsFunction: cobra.NoFileCompletions,
		Long: bucketHelp,
		Example: `  holt bucket create releases --retain 90d
  holt bucket create nightly --keep 5 --expire 30d --quota 10GB
  holt bucket create latest --replace`,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := holt.BucketSpec{Name: args[0]}
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			change, err := f.change(cmd)
			if err == nil && change != (holt.BucketChange{}) {
				err = change.Apply(&spec)
			}
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
	f.register(a, cmd)
	return cmd
}

const bucketHelp = `Artifacts that --expire, --keep and --replace no longer allow are deleted within a minute. What is
retained or on hold is deleted when that ends. A put or publish that exceeds --quota is refused.

With --scan, an artifact appears only when the scan accepts it. A command has the bytes on standard
input and HOLT_ARTIFACT_NAME, _BUCKET, _SIZE, _SHA256 and _TYPE in its environment. Exit status 0
accepts, 1 refuses; its output is the reason. A URL gets a POST of the bytes, and accepts with a 2xx
status. The output {"allow": false, "reason": "…"} refuses too. If a scan fails the artifact is
refused.`

func (a *app) bucketSet() *cobra.Command {
	var f bucketFlags
	cmd := &cobra.Command{
		Use: "set BUCKET", Short: "Change settings of a bucket", Args: exactly(1),
		Long: bucketHelp + "\n\nThe value none removes a setting.",
		Example: `  holt bucket set releases --expire 30d --keep 10
  holt bucket set uploads --scan "/usr/local/bin/scan-upload --strict"
  holt bucket set releases --quota none`,
		ValidArgsFunction: a.complete(bucketNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			change, err := f.change(cmd)
			if err == nil && change == (holt.BucketChange{}) {
				err = holt.Errorf(holt.InvalidArgument, "no setting is given").WithHint("add one, such as --expire 30d")
			}
			if err != nil {
				return err
			}
			b, err := c.Artifacts.UpdateBucket(cmd.Context(), args[0], change, "")
			if err != nil {
				return err
			}
			return a.showBucket(b)
		},
	}
	f.register(a, cmd)
	return cmd
}

func (a *app) bucketShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show BUCKET", Aliases: []string{"get"}, Short: "Show a bucket and its settings", Args: exactly(1), Example: "  holt bucket show releases",
		ValidArgsFunction: a.complete(bucketNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			b, err := c.Artifacts.Bucket(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.showBucket(b)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) showBucket(b holt.Bucket) error {
	if a.wantsJSON() {
		return printJSON(a.Out, b)
	}
	rows := [][]string{{"bucket", b.Name}, {"artifacts", fmt.Sprint(b.Artifacts)}, {"size", size(b.Bytes)}, {"created", calendar(b.CreatedAt.Local())}}
	add := func(name, value string, there bool) {
		if there {
			rows = append(rows, []string{name, value})
		}
	}
	add("versions", "replaced", b.Replace)
	add("retained for", holt.ShortMS(b.RetainMS), b.RetainMS > 0)
	add("expire after", holt.ShortMS(b.ExpireMS), b.ExpireMS > 0)
	add("keep", holt.CountOf(b.Keep, "version"), b.Keep > 0)
	add("quota", size(b.QuotaMB<<20), b.QuotaMB > 0)
	add("scan", visible(cmp.Or(b.Scan, "yes")), b.Scanned)
	return printTable(a.Out, nil, rows)
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
			if err != nil {
				return err
			}
			head := []string{"BUCKET", "ARTIFACTS", "SIZE", "VERSIONS", "RETAINED FOR", "CREATED"}
			return printList(a, all, "no buckets; the first is created with: holt artifact publish COMPUTER:PATH", head, func(b holt.Bucket) []string {
				versions, retain := "kept", "-"
				if b.Replace {
					versions = "replaced"
				}
				if b.RetainMS > 0 {
					retain = holt.ShortMS(b.RetainMS)
				}
				return []string{b.Name, fmt.Sprint(b.Artifacts), size(b.Bytes), versions, retain, ago(b.CreatedAt)}
			})
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
