package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// printJSON writes v as people can read it too.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printJSONPages prints one array, as printJSON does, of which only a page is
// in memory at a time. After an error the array is left open: what came is no
// JSON then, so it is not taken for the whole.
func printJSONPages[T any](w io.Writer, pages iter.Seq2[[]T, error]) error {
	before := "[\n  "
	for page, err := range pages {
		if err != nil {
			return err
		}
		for _, item := range page {
			var one strings.Builder
			enc := json.NewEncoder(&one)
			enc.SetEscapeHTML(false)
			enc.SetIndent("  ", "  ")
			if err := enc.Encode(item); err != nil {
				return err
			}
			if _, err := io.WriteString(w, before+strings.TrimSuffix(one.String(), "\n")); err != nil {
				return err
			}
			before = ",\n  "
		}
	}
	if before[0] == '[' {
		_, err := io.WriteString(w, "[]\n")
		return err
	}
	_, err := io.WriteString(w, "\n]\n")
	return err
}

// printList prints what a list has as JSON or as a table; none is said if it is empty.
func printList[T any](a *app, all []T, none string, head []string, row func(T) []string) error {
	switch {
	case a.wantsJSON():
		return printJSON(a.Out, all)
	case len(all) == 0:
		a.say("%s", none)
		return nil
	}
	rows := make([][]string, len(all))
	for i, one := range all {
		rows[i] = row(one)
	}
	return printTable(a.Out, head, rows)
}

// printTable writes rows under a head, aligned as a terminal shows them: an
// emoji takes two columns, an accent none.
func printTable(w io.Writer, head []string, rows [][]string) error {
	var table [][]string
	if len(head) > 0 {
		table = append(table, head)
	}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = oneLine(c)
		}
		table = append(table, cells)
	}
	var widths []int
	for _, row := range table {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], runewidth.StringWidth(c))
		}
	}
	var out strings.Builder
	for _, row := range table {
		var line strings.Builder
		for i, c := range row {
			if i == len(row)-1 {
				line.WriteString(c)
				break
			}
			line.WriteString(runewidth.FillRight(c, widths[i]+2))
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// oneLine returns text as it may stand in a line of a terminal.
func oneLine(s string) string {
	return strings.NewReplacer("\t", "␉", "\n", "␊").Replace(visible(s))
}

// shown returns a name as a person reads it: one that is not UTF-8 as Git
// writes it.
func shown[S ~string](name S) string {
	if !utf8.ValidString(string(name)) {
		return quoteBytes([]byte(name))
	}
	return oneLine(string(name))
}

// size says how much n bytes are.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}

// ago says how long ago t was.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(time.Since(t)) + " ago"
}

// took says how long something took.
func took(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

// span says how long d is, in its greatest unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
