package cli

import (
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) workspaceQuery() *cobra.Command {
	var q holt.QuerySpec
	var asCSV bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   `query NAME… "SELECT …"`,
		Short: "Query files with SQL",
		Long: `Runs one SELECT statement (SQLite) on a workspace, now or at a checkpoint. The tables are:

  files(path, dir, name, kind, size, mode, mtime, ctime, writer, run, …)
  tags(path, name, value)      the extended attributes user.*
  files_at, tags_at            the same for all checkpoints; the column checkpoint selects one
  checkpoints(name, created_at, note, run, files, bytes, …)
  changes('FROM', 'TO')        the output of holt workspace diff: path, kind, type, old_path,
                               size_before, size_after, writer, run, …

With several names, or with --forks, one query covers several workspaces, and the tables have a
column workspace. NAME@CHECKPOINT selects a workspace at a checkpoint. Queries are read-only and see
one consistent state of each workspace. Limits: 10,000 rows, 16 MiB, 256 KiB per value or row, and
100 workspaces.

Bytes that are not UTF-8, as in some file names, are printed as Git does: "caf\351.txt". In JSON
they are {"base64":"Y2Fm6S50eHQ="}.`,
		Example: `  holt workspace query einstein "SELECT path FROM files WHERE mtime > '2026-06-09'"
  holt workspace query einstein "SELECT dir, sum(size) FROM files GROUP BY dir ORDER BY 2 DESC"
  holt workspace query einstein "SELECT path, run FROM files WHERE writer = 'agent' AND mtime > date('now','-7 days')"
  holt workspace query einstein --at before-upgrade "SELECT path FROM files WHERE size > 1000000"
  holt workspace query einstein "SELECT run, count(*) FROM changes('before-upgrade', 'live') GROUP BY run"
  holt workspace query einstein --forks "SELECT workspace, sum(size) FROM files WHERE path LIKE '%/node_modules/%' GROUP BY 1 ORDER BY 2 DESC"
  holt workspace query einstein einstein-1 "SELECT f.path FROM files f LEFT JOIN files p ON p.workspace = 'einstein' AND p.path = f.path
      WHERE f.workspace = 'einstein-1' AND (p.path IS NULL OR p.mtime <> f.mtime)"`,
		Args:              atLeast(2, -1),
		ValidArgsFunction: a.completeAll(a.workspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.query(asCSV, func() (holt.QueryResult, error) {
				c, err := a.connectFor(cmd)
				if err != nil {
					return holt.QueryResult{}, err
				}
				last := len(args) - 1
				q.SQL, q.Also, q.TimeoutMS = args[last], args[1:last], timeout.Milliseconds()
				return c.Workspaces.Query(cmd.Context(), args[0], q)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asCSV, "csv", false, "print CSV (RFC 4180) with a header")
	f.StringVar(&q.At, "at", "", "the checkpoint, or its #number, for workspaces without @CHECKPOINT (default: live)")
	f.BoolVar(&q.Forks, "forks", false, "include all forks of these workspaces, and their forks")
	f.IntVar(&q.MaxRows, "max-rows", 0, "maximum number of rows (default: 10000)")
	f.DurationVar(&timeout, "timeout", 0, "time limit, at most 5m (default: 10s)")
	a.jsonFlag(cmd)
	return cmd
}

// query asks a question and prints the answer.
func (a *app) query(asCSV bool, ask func() (holt.QueryResult, error)) error {
	if asCSV && a.json {
		return holt.Errorf(holt.InvalidArgument, "--json and --csv exclude each other").WithHint("use only one of them")
	}
	result, err := ask()
	if err != nil {
		return err
	}
	switch {
	case asCSV:
		err = printCSV(a.Out, result)
	case a.wantsJSON():
		err = printJSON(a.Out, result)
	default:
		err = printRows(a.Out, result)
		a.say("%s in %.1f ms", holt.CountOf(len(result.Rows), "row"), result.ElapsedMS)
	}
	if result.Truncated && !a.json {
		a.say("holt: there are more rows; raise the limit with --max-rows")
	}
	return err
}

// cell returns a value of a result as text.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case map[string]any: // bytes that are no text, see [holt.QueryResult]
		if text, ok := v["base64"].(string); ok && len(v) == 1 {
			if b, err := base64.StdEncoding.DecodeString(text); err == nil {
				return quoteBytes(b)
			}
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// quoteBytes writes bytes that are not UTF-8 as Git writes such names: a C
// string with octal escapes. What in them is UTF-8 and printable stays.
func quoteBytes(b []byte) string {
	out := []byte{'"'}
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == '"' || r == '\\':
			out = append(out, '\\', b[0])
		case unicode.IsPrint(r) && (r != utf8.RuneError || n > 1):
			out = append(out, b[:n]...)
		default:
			for _, c := range b[:n] {
				out = fmt.Appendf(out, "\\%03o", c)
			}
		}
		b = b[n:]
	}
	return string(append(out, '"'))
}

func cells(rows [][]any) [][]string {
	out := make([][]string, len(rows))
	for i, row := range rows {
		out[i] = make([]string, len(row))
		for j, v := range row {
			out[i][j] = cell(v)
		}
	}
	return out
}

func printRows(w io.Writer, r holt.QueryResult) error { return printTable(w, r.Columns, cells(r.Rows)) }

func printCSV(w io.Writer, r holt.QueryResult) error {
	rows := append([][]string{r.Columns}, cells(r.Rows)...)
	if isTerminal(w) { // a guest chose these bytes
		for _, row := range rows {
			for i := range row {
				row[i] = visible(row[i])
			}
		}
	}
	return csv.NewWriter(w).WriteAll(rows) // flushes
}
