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
		Use:   `query NAME "SELECT …"`,
		Short: "Ask a question in SQL",
		Long: `Asks the workspace, as it is now, one question in SQLite's SQL. The view files
has path, dir, name, kind, size, mode, mtime, ctime, writer, run and more; the
view tags has path, name and value. The view files_at has the files of every
checkpoint, by its column checkpoint.

Bytes that are not UTF-8, as in some names, are shown as Git shows them:
"caf\351.txt". In JSON they are {"base64":"Y2Fm6S50eHQ="}, so that nothing
else can be taken for them.`,
		Example: `  holt workspace query einstein "SELECT path FROM files WHERE mtime > '2026-06-09'"
  holt workspace query einstein "SELECT dir, sum(size) FROM files GROUP BY dir ORDER BY 2 DESC"
  holt workspace query einstein "SELECT path, run FROM files WHERE writer = 'agent' AND mtime > date('now','-7 days')"
  holt workspace query einstein "SELECT path FROM files_at WHERE checkpoint = 'before-upgrade' AND size > 1000000"`,
		Args:              exactly(2),
		ValidArgsFunction: a.complete(a.workspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseEmptyFlags(cmd); err != nil {
				return err
			}
			if asCSV && a.json {
				return holt.Errorf(holt.InvalidArgument, "--json and --csv exclude each other")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			q.SQL, q.TimeoutMS = args[1], timeout.Milliseconds()
			result, err := c.Workspaces.Query(cmd.Context(), args[0], q)
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
				a.say("%d rows in %.1f ms", len(result.Rows), result.ElapsedMS)
			}
			if result.Truncated && !a.json {
				a.say("holt: there are more rows; --max-rows sets the limit")
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asCSV, "csv", false, "print CSV (RFC 4180) with a head")
	f.IntVar(&q.MaxRows, "max-rows", 0, "most rows to return (default: 10000)")
	f.DurationVar(&timeout, "timeout", 0, "most time to spend (default: 10s)")
	a.jsonFlag(cmd)
	return cmd
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
