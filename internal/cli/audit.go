package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) auditCommand() *cobra.Command {
	return group("audit", "What was done, by whom, and what was refused", a.auditList(), a.auditQuery())
}

// auditHelp says what the audit log has.
const auditHelp = `The audit log has everything that changed something, reads of files, of output and of logs, attached terminals,
connections and what was refused, through every door. What goes on, and what starts a command or a terminal, has an entry
at its beginning, too (begun). Entries stay for 90 days, the newest million of them, and nothing changes them. Of
strangers, and of tokens that make too many calls, it has one entry a minute each, with how many it left out (more=N),
and a few a minute of all. A tenant's token sees its own tenant's entries, an admin all.`

func (a *app) auditList() *cobra.Command {
	var limit int
	var of string
	cmd := &cobra.Command{
		Use: "list", Short: "List what was done, the newest first", Args: exactly(0),
		Long: "Lists what was done through any door, the newest first.\n\n" + auditHelp,
		Example: `  holt audit list
  holt audit list --limit 1000 --of team-a --json | jq '.[] | select(.code != "ok")'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return holt.Errorf(holt.InvalidArgument, "--limit %d shows nothing", limit).WithHint("give 1 or more")
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
	cmd.Flags().IntVar(&limit, "limit", 100, "how many")
	cmd.Flags().StringVar(&of, "of", "", "only this tenant's")
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
		Use: `query "SELECT …"`, Short: "Ask the audit log in SQL", Args: exactly(1),
		Long: `Asks one question in SQLite's SQL about the table

  audit(seq, at, tenant, actor, token, name, door, remote, op, noun, ref, made, code, status, request, took_us)

It can only read. At most 10,000 rows come back. A tenant's token asks about the newest 50,000 entries of its tenant.

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
	cmd.Flags().IntVar(&q.MaxRows, "max-rows", 0, "most rows (default 10000)")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long it may take, as 30s (default 10s; at most 1m)")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print CSV")
	a.jsonFlag(cmd)
	return cmd
}
