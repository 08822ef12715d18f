package db

import (
	"fmt"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"holt"
)

// Table is a virtual table whose rows are computed in Go. A query calls it like
// a function, name('a', 'b'), or uses it without arguments.
type Table struct {
	Name    string
	Columns []string // of the result
	Args    []string // arguments, as hidden columns

	// Find returns the rows for args; arguments that were not given are "". tx sees
	// the same state as the query. A [holt.Error] becomes the error of the query.
	Find func(tx *Tx, args []string) (Rows, error)
}

// Rows is the result of a [Table]. It is immutable.
type Rows interface {
	Len() int
	// Value returns a column of a row: string, int64, bool or nil. The columns are
	// followed by the arguments, including those not given.
	Value(row, column int) any
}

// mostHeld limits the rows of tables held by the cursors of one query.
const mostHeld = 1_000_000

// computed registers a table of a source for one query.
func (a *asked) computed(t Table, source string) sqlite.VTableConnectFunc {
	return func(c *sqlite.Conn, _ *sqlite.VTableConnectOptions) (sqlite.VTable, *sqlite.VTableConfig, error) {
		var columns []string
		for _, name := range t.Columns {
			columns = append(columns, quoted(name))
		}
		for _, name := range t.Args {
			columns = append(columns, quoted(name)+" HIDDEN")
		}
		return &computedTable{a: a, t: t, c: c, source: source}, &sqlite.VTableConfig{Declaration: "CREATE TABLE x(" + strings.Join(columns, ", ") + ")"}, nil
	}
}

// computedTable is a table on one connection. It caches its last result, since
// a join repeats the same call for each outer row.
type computedTable struct {
	a      *asked
	t      Table
	c      *Conn
	source string // name of the source, if there are several
	args   []string
	rows   Rows
}

// BestIndex assigns the arguments. A plan in which an argument is not known yet is unusable.
func (v *computedTable) BestIndex(in *sqlite.IndexInputs) (*sqlite.IndexOutputs, error) {
	out := &sqlite.IndexOutputs{ConstraintUsage: make([]sqlite.IndexConstraintUsage, len(in.Constraints)), EstimatedCost: 1e6, EstimatedRows: 1e4}
	at := make([]int, len(v.t.Args)) // index of the constraint for each argument
	for i, c := range in.Constraints {
		n := c.Column - len(v.t.Columns)
		if n < 0 || c.Op != sqlite.IndexConstraintEq || at[n] != 0 {
			continue
		}
		if !c.Usable {
			return nil, sqlite.ResultConstraint.ToError()
		}
		at[n] = i + 1
	}
	arg := 0
	for n, i := range at {
		if i > 0 {
			arg++
			out.ConstraintUsage[i-1] = sqlite.IndexConstraintUsage{ArgvIndex: arg, Omit: true}
			out.ID.Num |= 1 << n
		}
	}
	return out, nil
}

func (v *computedTable) Open() (sqlite.VTableCursor, error) { return &computedCursor{v: v}, nil }
func (v *computedTable) Disconnect() error                  { return nil }
func (v *computedTable) Destroy() error                     { return nil }

// find returns the rows for arguments. held is the number of rows that the cursor held before.
func (v *computedTable) find(args []string, held int) (Rows, error) {
	if v.rows == nil || !slices.Equal(v.args, args) {
		rows, err := v.t.Find(&Tx{v.c}, args)
		if err != nil {
			return nil, err
		}
		v.args, v.rows = args, rows
	}
	v.a.held += v.rows.Len() - held
	if v.a.held > mostHeld {
		return nil, holt.Errorf(holt.InvalidArgument, "the query holds more than %d rows of %s in memory", mostHeld, v.t.Name).
			WithHint("select fewer rows; holt workspace diff has no such limit")
	}
	return v.rows, nil
}

type computedCursor struct {
	v    *computedTable
	args []string
	rows Rows
	held int
	row  int
}

func (u *computedCursor) Filter(id sqlite.IndexID, argv []sqlite.Value) error {
	u.args, u.row = make([]string, len(u.v.t.Args)), 0
	for n := range u.args {
		if id.Num&(1<<n) != 0 {
			u.args[n], argv = argv[0].Text(), argv[1:]
		}
	}
	rows, err := u.v.find(u.args, u.held)
	if err != nil {
		if u.v.source != "" {
			err = fmt.Errorf("%s: %w", u.v.source, err)
		}
		return u.v.a.refuse(err)
	}
	u.rows, u.held = rows, rows.Len()
	return nil
}

func (u *computedCursor) Next() error           { u.row++; return nil }
func (u *computedCursor) EOF() bool             { return u.row >= u.rows.Len() }
func (u *computedCursor) RowID() (int64, error) { return int64(u.row), nil }
func (u *computedCursor) Close() error          { u.v.a.held -= u.held; return nil }

func (u *computedCursor) Column(i int, _ bool) (sqlite.Value, error) {
	if n := i - len(u.v.t.Columns); n >= 0 && u.args[n] != "" {
		return sqlite.TextValue(u.args[n]), nil // SQLite may check the constraint again
	}
	switch v := u.rows.Value(u.row, i).(type) {
	case string:
		return sqlite.TextValue(v), nil
	case int64:
		return sqlite.IntegerValue(v), nil
	case bool:
		if v {
			return sqlite.IntegerValue(1), nil
		}
		return sqlite.IntegerValue(0), nil
	case nil:
		return sqlite.Value{}, nil
	default:
		return sqlite.Value{}, fmt.Errorf("column %d of %s is a %T", i, u.v.t.Name, v)
	}
}

// refuse records the error of a table as that of the query.
func (a *asked) refuse(err error) error {
	if a.refused == nil && holt.CodeOf(err) != holt.Internal {
		a.refused = err
	}
	return err
}

// quoted quotes a name for SQL.
func quoted(name string) string { return fmt.Sprintf("%q", name) }
