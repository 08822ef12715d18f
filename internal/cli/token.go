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
	return group("token", "Who may come in over TCP and SSH, and what they may do", a.tokenCreate(), a.tokenList(), a.tokenRevoke())
}

// scopeHelp says what scopes there are.
const scopeHelp = `Scopes:
  admin                         what is the host's, and every tenant (with --tenant)
  read-only                     look, and change nothing; looking into a computer (its files, services, ports)
                                wakes it if it sleeps
  computer:NAME                 this computer, what belongs to it, and its workspace
  user:NAME                     only as this Linux user in computers; it can come with any other
  workspace:NAME[:read][:/DIR]  files of this workspace, from a directory on
  port:COMPUTER:N               connections to this port of a computer
Without any a token may do everything in its tenant. With some of computer, workspace and port it reaches
these and nothing else. A token can make others that may do no more and live no longer than itself; they
are revoked with it.`

func (a *app) tokenCreate() *cobra.Command {
	var scopes []string
	var life string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make a token, and print its secret once", Args: exactly(1),
		Long: `Makes a token. Its secret is printed this once and kept nowhere. --tenant makes it one of another tenant, whose
things nobody else's tokens see.

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
				return holt.Errorf(holt.Unavailable, "the token %s was made, and the answer with its secret was lost", made.ID).
					WithHint("revoke it, and make another: holt token revoke %s", made.ID)
			}
			if a.wantsJSON() {
				return printJSON(a.Out, made)
			}
			fmt.Fprintf(a.Err, "token %s of the tenant %s, %s; its secret is shown this once:\n", made.ID, made.Tenant, expiry(made.Token))
			_, err = fmt.Fprintln(a.Out, made.Secret)
			return err
		},
	}
	cmd.Flags().StringArrayVar(&scopes, "scope", nil, "what it may do, any number of times; default: everything in its tenant")
	cmd.Flags().StringVar(&life, "expires", "", "for how long, as 12h or 30d; default: for ever")
	a.jsonFlag(cmd)
	return cmd
}

// parseLife reads a duration that may be in days.
func parseLife(s string) (time.Duration, error) {
	span, err := time.ParseDuration(s)
	if days, of := strings.CutSuffix(s, "d"); of {
		span, err = time.ParseDuration(days + "h")
		span *= 24
	}
	if err != nil || span < time.Second || span > 100*365*24*time.Hour {
		return 0, holt.Errorf(holt.InvalidArgument, "%q is no time that a token can live for", holt.Clip(s, 40)).WithHint("give it as 90m, 12h or 30d; leave --expires out for one that does not expire")
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
		Long: "Lists the tokens of a tenant (--tenant; default: default), the oldest first, also those that expired in\nthe last week.\n\n" + scopeHelp,
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
		Use: "revoke TOKEN...", Aliases: []string{"delete", "rm"}, Short: "Revoke a token at once, with what it has open", Args: exactly(1),
		Long: `Revokes a token, by id or by a name that only one has, and the tokens that it has made. Their calls, terminals
and connections that go on end at once.`,
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
