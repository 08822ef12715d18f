package computer

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"holt/internal/store/db"
)

// column ties a column of a table to a Go variable: reads and writes of a row
// name each column once.
type column struct {
	name string                         // or an expression, if it is only read
	arg  any                            // the variable's value as SQLite takes it, or the error of encoding it
	scan func(row *db.Row, i int) error // sets the variable
}

func text[T ~string](name string, p *T) column {
	return column{name, string(*p), func(row *db.Row, i int) error { *p = T(row.Text(i)); return nil }}
}

func number[T ~int | ~int64 | ~uint16](name string, p *T) column {
	return column{name, int64(*p), func(row *db.Row, i int) error { *p = T(row.Int64(i)); return nil }}
}

func boolean(name string, p *bool) column {
	return column{name, *p, func(row *db.Row, i int) error { *p = row.Int64(i) != 0; return nil }}
}

// stamp is a time that is always set.
func stamp(name string, p *time.Time) column {
	return column{name, p.UnixNano(), func(row *db.Row, i int) error { *p = time.Unix(0, row.Int64(i)).UTC(); return nil }}
}

// maybeStamp is a time that may be nil, which the table has as 0.
func maybeStamp(name string, p **time.Time) column {
	return column{name, nanos(*p), func(row *db.Row, i int) error { *p = timeOf(row.Int64(i)); return nil }}
}

// encoded is a value as JSON; an empty column leaves it as it is.
func encoded(name string, p any) column {
	var arg any
	if b, err := json.Marshal(p); err != nil {
		arg = fmt.Errorf("encode %s: %w", name, err)
	} else {
		arg = string(b)
	}
	return column{name, arg, func(row *db.Row, i int) error {
		b := row.Bytes(i)
		if len(b) == 0 {
			return nil
		}
		if err := json.Unmarshal(b, p); err != nil {
			return fmt.Errorf("decode %s: %w", name, err)
		}
		return nil
	}}
}

func nanos(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixNano()
}

func timeOf(ns int64) *time.Time {
	if ns == 0 {
		return nil
	}
	t := time.Unix(0, ns).UTC()
	return &t
}

// selectRows reads the rows of a table that a condition selects. columns returns
// the columns of a variable, in the same order for each.
func selectRows[T any](tx *db.Tx, table, condition string, args []any, columns func(*T) []column, each func(*T) error) error {
	var names []string
	for _, c := range columns(new(T)) {
		names = append(names, c.name)
	}
	return tx.Query(`SELECT `+strings.Join(names, ", ")+` FROM `+table+` `+condition, args, func(row *db.Row) error {
		one := new(T)
		for i, c := range columns(one) {
			if err := c.scan(row, i); err != nil {
				return err
			}
		}
		return each(one)
	})
}

// insertRow adds a row; or is "" or, for instance, "OR IGNORE".
func insertRow(tx *db.Tx, or, table string, columns []column) error {
	names, marks, args := make([]string, len(columns)), make([]string, len(columns)), make([]any, len(columns))
	for i, c := range columns {
		if err, failed := c.arg.(error); failed {
			return err
		}
		names[i], marks[i], args[i] = c.name, "?", c.arg
	}
	return tx.Exec(fmt.Sprintf(`INSERT %s INTO %s (%s) VALUES (%s)`, or, table, strings.Join(names, ", "), strings.Join(marks, ", ")), args...)
}

// updateRow sets columns of the row with an id.
func updateRow(tx *db.Tx, table string, id string, columns []column) error {
	sets, args := make([]string, len(columns)), make([]any, len(columns))
	for i, c := range columns {
		sets[i], args[i] = c.name+" = ?", c.arg
	}
	return tx.Exec(`UPDATE `+table+` SET `+strings.Join(sets, ", ")+` WHERE id = ?`, append(args, id)...)
}
