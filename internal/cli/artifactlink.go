package cli

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) artifactLink() *cobra.Command {
	spec, life := holt.ArtifactLinkSpec{}, ""
	cmd := &cobra.Command{
		Use: "link ARTIFACT", Short: "Create a link to an artifact, for people without a token", Args: exactly(1),
		Long: `Prints a URL. Everyone who has it can download the artifact until the link expires or is revoked, or
until the artifact is deleted. A link of BUCKET/NAME is to the version that is now the newest. It expires
no later than the token that creates it. The URL is not kept and cannot be shown again.

With --once the link ends with its first download, even one that is cut off, or by a program that looks
at links in messages. With --inline browsers show the artifact instead of downloading it. No script in it
runs, and some browsers show no PDF then.

The host of the URL is artifacts.localhost, for browsers on the daemon's machine; with --preview-domain of
holt serve it is artifacts.DOMAIN.`,
		Example: `  holt artifact link artifacts/report.pdf
  holt artifact link releases/app/1.2.tar.gz --for 7d --as app.tar.gz
  curl -O "$(holt artifact link artifacts/report.pdf --once)"`,
		ValidArgsFunction: a.complete(artifactNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			span, err := parseSpan("lifetime", life)
			if err != nil {
				return err
			}
			spec.ExpiresInMS = span.Milliseconds()
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			made, err := c.Artifacts.CreateLink(cmd.Context(), args[0], spec, "")
			if err != nil {
				return err
			}
			if made.URL == "" { // the first answer was lost, and that of the repeated call has none
				return holt.Errorf(holt.Unavailable, "the answer with the URL of the link %s was lost", made.ID).
					WithHint("revoke it, and create another: holt artifact unlink %s %s", made.ArtifactID, made.ID)
			}
			if a.json {
				return printJSON(a.Out, made)
			}
			fmt.Fprintln(a.Out, made.URL)
			if at, err := url.Parse(made.URL); err == nil && strings.HasSuffix(at.Hostname(), ".localhost") {
				a.say("it works only on the daemon's machine; for links that work everywhere, set preview-domain on the daemon")
			}
			a.sayForPrograms(holt.Preview{URL: made.URL}, made.ProgramURL)
			a.say("%s works until %s; revoke it with: holt artifact unlink %s %s", made.ID, made.ExpiresAt.Local().Format("Jan 2 15:04"), shellWord(args[0]), made.ID)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&life, "for", "24h", "how long it works, such as 12h or 30d, at most 365d")
	f.StringVar(&spec.FileName, "as", "", "name of the downloaded file (default: the last part of the artifact's name)")
	f.BoolVar(&spec.Once, "once", false, "only one download")
	f.BoolVar(&spec.Inline, "inline", false, "browsers show it, without scripts, instead of downloading it")
	f.BoolVar(&a.json, "json", false, "print JSON instead of the URL alone")
	return cmd
}

func (a *app) artifactLinks() *cobra.Command {
	cmd := &cobra.Command{
		Use: "links ARTIFACT", Short: "List the links to an artifact", Args: exactly(1),
		Long:              "Lists the links that have not expired, without their URLs.",
		Example:           "  holt artifact links artifacts/report.pdf",
		ValidArgsFunction: a.complete(artifactNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			all, err := c.Artifacts.Links(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			head := []string{"LINK", "FILE", "WORKS UNTIL", "DOWNLOADS", "LAST", "CREATED BY"}
			return printList(a, all, "no links; create one with: holt artifact link "+shellWord(args[0]), head, func(l holt.ArtifactLink) []string {
				used, last := fmt.Sprint(l.Used), "-"
				if l.Once {
					used += " of 1"
				}
				if l.LastUsedAt != nil {
					last = ago(*l.LastUsedAt)
				}
				return []string{string(l.ID), visible(l.FileName), calendar(l.ExpiresAt.Local()), used, last, visible(l.By)}
			})
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) artifactUnlink() *cobra.Command {
	cmd := &cobra.Command{
		Use: "unlink ARTIFACT LINK", Short: "Revoke a link to an artifact", Args: exactly(2),
		Long:              "The link stops working. A download in progress is not interrupted.",
		Example:           "  holt artifact unlink artifacts/report.pdf lnk_d5o7dp6rixbsakb4",
		ValidArgsFunction: a.completeSecond(artifactNames, linkNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err == nil {
				err = c.Artifacts.DeleteLink(cmd.Context(), args[0], args[1], "")
			}
			if err != nil {
				return err
			}
			return a.deleted(args[1])
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func linkNames(of string) names {
	return func(ctx context.Context, c *client.Client) (out []string) {
		all, _ := c.Artifacts.Links(ctx, of) // no daemon, no names
		for _, l := range all {
			out = append(out, string(l.ID)+"\t"+l.FileName)
		}
		return out
	}
}
