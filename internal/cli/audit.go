package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"holt"
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
	var q holt.AuditQuery
	var asCSV bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: `query "SELECT …"`, Short: "Query the audit log with SQL", Args: exactly(1),
		Long: `Runs one SELECT statement (SQLite) on the table

  audit(seq, at, tenant, actor, token, name, door, remote, op, noun, ref, made, code, status, request, took_us)

It is read-only and returns at most 10,000 rows. A tenant's token queries the newest 50,000 entries of its tenant.

` + auditHelp,
		Example: `  holt audit query "SELECT name, count(*) FROM audit WHERE code = 'forbidden' GROUP BY name"
  holt audit query "SELECT at, op, ref FROM audit WHERE token = 'tok_…' AND at > datetime('now', '-1 day') ORDER BY seq" --csv`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.query(asCSV, func() (holt.QueryResult, error) {
				c, err := a.connectFor(cmd)
				if err != nil {
					return holt.QueryResult{}, err
				}
				q.SQL, q.TimeoutMS = args[0], timeout.Milliseconds()
				return c.Audit.Query(cmd.Context(), "", q)
			})
		},
	}
	cmd.Flags().IntVar(&q.MaxRows, "max-rows", 0, "maximum number of rows (default: 10000)")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "time limit, such as 30s (default: 10s, at most 1m)")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print CSV")
	a.jsonFlag(cmd)
	return cmd
}
