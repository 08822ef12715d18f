package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) tokenCommand() *cobra.Command {
	return group("token", "Access tokens for the API and SSH", a.tokenCreate(), a.tokenList(), a.tokenRevoke(), a.s3KeyCreate(), a.s3KeyList(), a.s3KeyDelete())
}

// scopeHelp says what scopes there are.
const scopeHelp = `Scopes:
  admin                         everything, also settings of the host and other tenants (with --tenant)
  read-only                     only reads; reading files, services or ports of a paused computer wakes it
  computer:NAME                 only this computer, everything that belongs to it, and its workspace
  user:NAME                     in computers, only as this Linux user; can be combined with any other
  workspace:NAME[:read][:/DIR]  only files of this workspace, optionally below a directory
  port:COMPUTER:N               only connections to this port of a computer
  bucket:NAME[:read|write[:PREFIX]]
                                only artifacts of this bucket, optionally names that begin with PREFIX
A token without scopes can do everything in its tenant. A token with computer, workspace, port or bucket
scopes is limited to these objects. A token can create other tokens with at most its own rights and lifetime;
they are revoked with it.`

func (a *app) tokenCreate() *cobra.Command {
	var scopes []string
	var life string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a token and print its secret once", Args: exactly(1),
		Long: `Creates a token and prints its secret. The secret is not stored and cannot be shown again. With --tenant the token
belongs to another tenant. Tokens see only the objects of their own tenant.

` + scopeHelp,
		Example: `  holt token create laptop --scope admin --expires 30d
  holt token create ci --scope computer:einstein --scope user:agent --expires 12h
  holt --tenant team-a token create team-a
  holt token create reports --scope workspace:einstein:read:/reports`,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := holt.TokenSpec{Name: args[0]}
			for _, s := range scopes {
				spec.Scopes = append(spec.Scopes, holt.Scope(s))
			}
			if life != "" {
				span, err := parseLife(life)
				if err != nil {
					return err
				}
				spec.LifeMS = span.Milliseconds()
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			made, err := c.Tokens.Create(cmd.Context(), spec, "")
			if err != nil {
				return err
			}
			if made.Secret == "" {
				return holt.Errorf(holt.Unavailable, "the token %s was created, but the response with its secret was lost", made.ID).
					WithHint("revoke it with: holt token revoke %s; then create another", made.ID)
			}
			if a.wantsJSON() {
				return printJSON(a.Out, made)
			}
			fmt.Fprintf(a.Err, "token %s of tenant %s, %s; its secret is shown only once:\n", made.ID, made.Tenant, expiry(made.Token))
			_, err = fmt.Fprintln(a.Out, made.Secret)
			return err
		},
	}
	cmd.Flags().StringArrayVar(&scopes, "scope", nil, "what the token may do (repeatable; default: everything in its tenant)")
	cmd.Flags().StringVar(&life, "expires", "", "lifetime, such as 12h or 30d (default: unlimited)")
	a.jsonFlag(cmd)
	return cmd
}

// parseLife reads the lifetime of a token.
func parseLife(s string) (time.Duration, error) {
	span, err := parseSpan("lifetime", s)
	if err != nil {
		err = holt.AsError(err).WithHint("use a duration such as 90m, 12h or 30d, or leave --expires out for a token that does not expire")
	}
	return span, err
}

// parseSpan reads a duration that may be in days; what is its name in an error.
func parseSpan(what, s string) (time.Duration, error) {
	span, err := time.ParseDuration(s)
	if days, of := strings.CutSuffix(s, "d"); of {
		span, err = time.ParseDuration(days + "h")
		span *= 24
	}
	if err != nil || span < time.Second || span > 100*365*24*time.Hour {
		return 0, holt.Errorf(holt.InvalidArgument, "invalid %s %q", what, holt.Clip(s, 40)).WithHint("use a duration such as 90m, 12h or 30d")
	}
	return span, nil
}

// expiry says when a token ends.
func expiry(t holt.Token) string {
	switch {
	case t.ExpiresAt == nil:
		return "does not expire"
	case !time.Now().Before(*t.ExpiresAt):
		return "expired"
	}
	return "expires in " + holt.ShortDuration(time.Until(*t.ExpiresAt).Round(time.Second))
}

func (a *app) tokenList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List tokens, without their secrets", Args: exactly(0),
		Long: "Lists the tokens of a tenant (--tenant; default: default), oldest first, including those that expired\nwithin the last week.\n\n" + scopeHelp,
		Example: `  holt token list
  holt --tenant team-a token list --json | jq -r .[].id`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Tokens.List(cmd.Context())
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			rows := make([][]string, len(all))
			for i, t := range all {
				scopes, used := "everything in its tenant", "never"
				if len(t.Scopes) > 0 {
					scopes = ""
					for n, s := range t.Scopes {
						if n > 0 {
							scopes += " "
						}
						scopes += string(s)
					}
				}
				if t.LastUsedAt != nil {
					used = ago(*t.LastUsedAt)
				}
				rows[i] = []string{string(t.ID), t.Name, t.Tenant, expiry(t), used, scopes}
			}
			return printTable(a.Out, []string{"ID", "NAME", "TENANT", "LIFE", "USED", "SCOPES"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) tokenRevoke() *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke TOKEN...", Aliases: []string{"delete", "rm"}, Short: "Revoke tokens and close their connections", Args: exactly(1),
		Long: `Revokes a token, given by its id or its name if that is unique, and the tokens created with it. Their calls,
terminals and connections end immediately.`,
		Example: `  holt token revoke ci
  holt token revoke tok_d5o7dp6rixbsakb4 tok_2xk6wq7l3fpsm5ja`,
		ValidArgsFunction: a.completeAll(tokenNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.Tokens.Delete(cmd.Context(), args[0], ""); err != nil {
				return err
			}
			return a.deleted(args[0])
		},
	}
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

// tokenNames completes tokens: by name, or by id where several have it.
func tokenNames(ctx context.Context, c *client.Client) (out []string) {
	all, _ := c.Tokens.List(ctx) // no daemon, no names
	have := map[string]int{}
	for _, t := range all {
		have[t.Name]++
	}
	for _, t := range all {
		if have[t.Name] == 1 {
			out = append(out, t.Name)
		} else {
			out = append(out, string(t.ID)+"\t"+t.Name)
		}
	}
	return out
}
