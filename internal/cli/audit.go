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

func (a *app) auditCommand() *cobra.Command {
	return group("audit", "Log of calls: who did what, and what was refused", a.auditList(), a.auditQuery())
}

// auditHelp says what the audit log has.
const auditHelp = `The audit log records, for the API, SSH and previews: every change, every read of files, output and logs, attached
terminals, connections, and refused calls. A long call, and one that starts a command or a terminal, also has an entry
when it begins (code: begun). Entries cannot be changed; the newest million are kept for 90 days. Unauthenticated
addresses, and tokens over their rate, get one entry a minute, with the number of calls left out (more=N). A tenant's
token sees the entries of its tenant, an admin sees all.`

func (a *app) auditList() *cobra.Command {
	var limit int
	var of string
	cmd := &cobra.Command{
		Use: "list", Short: "List audit entries, newest first", Args: exactly(0),
		Long: "Lists entries of the audit log, newest first.\n\n" + auditHelp,
		Example: `  holt audit list
  holt audit list --limit 1000 --of team-a --json | jq '.[] | select(.code != "ok")'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return holt.Errorf(holt.InvalidArgument, "invalid --limit %d", limit).WithHint("use 1 or more")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Audit.List(cmd.Context(), holt.AuditSpec{Limit: limit, Tenant: of})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			rows := make([][]string, len(all))
			for i, e := range all {
				who := e.Actor
				if e.Name != "" {
					who += " " + e.Name
				}
				what := e.Ref
				if e.Made != "" {
					what += " → " + e.Made
				}
				rows[i] = []string{e.At.Local().Format("2006-01-02 15:04:05"), orDash(e.Tenant), who, e.Door, e.Op, e.Code, fmt.Sprintf("%.1f ms", e.TookMS), what}
			}
			return printTable(a.Out, []string{"AT", "TENANT", "WHO", "DOOR", "WHAT", "RESULT", "TOOK", "ABOUT"}, rows)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "how many entries")
	cmd.Flags().StringVar(&of, "of", "", "only entries of this tenant")
	a.jsonFlag(cmd)
	return cmd
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) auditQuery() *cobra.Command {
	return a.tableQuery("audit", "all entries for an admin, the newest 50,000 of its tenant for others", "seq, at, tenant, actor, token, name, door, remote, op, noun, ref, made, code, status, request,\n  took_us", &cobra.Command{
		Short: "Query the audit log with SQL", Long: auditHelp,
		Example: `  holt audit query "SELECT name, count(*) FROM audit WHERE code = 'forbidden' GROUP BY name"
  holt audit query "SELECT at, op, ref FROM audit WHERE token = 'tok_…' AND at > datetime('now', '-1 day') ORDER BY seq" --csv`,
	}, func(c *client.Client, ctx context.Context, q holt.TableQuery) (holt.QueryResult, error) {
		return c.Audit.Query(ctx, "", q)
	})
}

// tableQuery makes cmd a command that asks SQL of a table with these columns; what says which rows it has.
func (a *app) tableQuery(table, what, columns string, cmd *cobra.Command, ask func(*client.Client, context.Context, holt.TableQuery) (holt.QueryResult, error)) *cobra.Command {
	var q holt.TableQuery
	var asCSV bool
	var timeout time.Duration
	cmd.Use, cmd.Args = `query "SELECT …"`, exactly(1)
	cmd.Long = strings.TrimSpace(fmt.Sprintf("Runs one SELECT statement (SQLite) on the table %s: %s.\nIt is read-only and returns at most 10,000 rows. The columns are\n\n  %s\n\n%s", table, what, columns, cmd.Long))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.query(asCSV, func() (holt.QueryResult, error) {
			c, err := a.connectFor(cmd)
			if err != nil {
				return holt.QueryResult{}, err
			}
			q.SQL, q.TimeoutMS = args[0], timeout.Milliseconds()
			return ask(c, cmd.Context(), q)
		})
	}
	cmd.Flags().IntVar(&q.MaxRows, "max-rows", 0, "maximum number of rows (default: 10000)")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "time limit, such as 30s (default: 10s, at most 1m)")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print CSV")
	a.jsonFlag(cmd)
	return cmd
}
