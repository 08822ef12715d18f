package db

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"holt"
)

// Across queries several databases of one schema as one. Each of their tables
// and views becomes a virtual table with an additional column that names the
// source of a row. The constraints of a query on its columns become a SELECT on
// each source that the query does not exclude, so that the indexes of the
// sources are used. (ATTACH is limited to ten databases.)

// Key finds the rows of a view by a column that has no index.
type Key struct {
	View, Column string
	Where        string                               // a condition with named parameters such as $dir; it must hold for all wanted rows
	Params       func(value string) map[string]string // values of the parameters for a value of the column
}

// Across is [Source.Query] over several sources. label is the name of the
// column that holds the source's name.
func Across(ctx context.Context, label string, sources []Source, sql string, limits Limits) (holt.QueryResult, error) {
	return ask(ctx, sql, limits, func(a *asked) (*Conn, error) {
		var members []member
		for _, s := range sources {
			c, err := a.source(s)
			if err != nil {
				return nil, err
			}
			members = append(members, member{s.Name, c})
		}
		c, err := a.connect(":memory:", sqlite.OpenReadWrite)
		if err != nil {
			return nil, err
		}
		var names []string
		err = sqlitex.ExecuteTransient(members[0].c, `SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`, &sqlitex.ExecOptions{
			ResultFunc: func(s *Stmt) error { names = append(names, s.ColumnText(0)); return nil }})
		if err != nil {
			return nil, err
		}
		for _, t := range sources[0].Tables {
			names = append(names, t.Name)
		}
		for _, name := range names {
			u := &union{a: a, label: label, name: name, members: members, unique: sources[0].Unique[name]}
			for _, k := range sources[0].Keys {
				if k.View == name {
					u.keys = append(u.keys, k)
				}
			}
			if err := c.SetModule(name, &sqlite.Module{Connect: u.connect}); err != nil {
				return nil, err
			}
		}
		return c, nil
	})
}

// member is an open source.
type member struct {
	name string
	c    *Conn
}

// union is one table or view of all members.
type union struct {
	a       *asked
	label   string
	name    string
	columns []unionColumn
	keys    []Key
	unique  []string
	members []member
	plans   []plan // by IndexID.Num
}

// unionColumn is a column; the first is the label.
type unionColumn struct {
	name   string
	hidden bool // an argument of a [Table]
	key    bool // part of the key that identifies a row of a member
}

// plan is a way to find rows. Its arguments come in this order: the names of
// the wanted members, then ?1, ?2 … of sql.
type plan struct {
	names int
	sql   string
	key   *Key
	keyed int // index of the argument of sql that the key constrains
}

func (u *union) connect(*sqlite.Conn, *sqlite.VTableConnectOptions) (sqlite.VTable, *sqlite.VTableConfig, error) {
	sql := "CREATE TABLE x(" + quoted(u.label) + " TEXT"
	u.columns = []unionColumn{{name: u.label}}
	err := sqlitex.ExecuteTransient(u.members[0].c, "SELECT name, type, hidden, pk FROM pragma_table_xinfo(?)", &sqlitex.ExecOptions{
		Args: []any{u.name},
		ResultFunc: func(s *Stmt) error {
			c := unionColumn{name: s.ColumnText(0), hidden: s.ColumnInt(2) == 1}
			c.key = c.hidden || s.ColumnInt(3) > 0 || slices.Contains(u.unique, c.name)
			u.columns = append(u.columns, c)
			sql += ", " + quoted(c.name) + " " + s.ColumnText(1)
			if c.hidden {
				sql += " HIDDEN"
			}
			return nil
		}})
	return u, &sqlite.VTableConfig{Declaration: sql + ")"}, err
}

func (u *union) Disconnect() error { return nil }
func (u *union) Destroy() error    { return nil }
func (u *union) Open() (sqlite.VTableCursor, error) {
	return &unionCursor{u: u, stmts: make([]*Stmt, len(u.members)), texts: make([]string, len(u.members))}, nil
}

// BestIndex makes a plan from the usable constraints.
func (u *union) BestIndex(in *sqlite.IndexInputs) (*sqlite.IndexOutputs, error) {
	var p plan
	var names, values []int // constraints
	var terms []string
	rows := 1e5 // estimated rows of one member
	for i, c := range in.Constraints {
		if c.Column < 0 || c.Column >= len(u.columns) {
			continue
		}
		col, equal := u.columns[c.Column], c.Op == sqlite.IndexConstraintEq
		if !c.Usable {
			if col.hidden && equal {
				return nil, sqlite.ResultConstraint.ToError() // no plan without it
			}
			continue
		}
		switch c.Op {
		case sqlite.IndexConstraintLike, sqlite.IndexConstraintGlob:
		case sqlite.IndexConstraintEq, sqlite.IndexConstraintGT, sqlite.IndexConstraintLE, sqlite.IndexConstraintLT, sqlite.IndexConstraintGE:
			if c.Collation != "BINARY" {
				continue
			}
		default:
			continue
		}
		if c.Column == 0 {
			if equal {
				names = append(names, i)
			}
			continue
		}
		values = append(values, i)
		terms = append(terms, fmt.Sprintf("%s %s ?%d", quoted(col.name), c.Op, len(values)))
		rows /= 4
		if k := u.key(col.name); equal && k != nil && p.key == nil {
			p.key, p.keyed, rows = k, len(values)-1, 1
			terms = append(terms, k.Where)
		}
	}
	out := &sqlite.IndexOutputs{ConstraintUsage: make([]sqlite.IndexConstraintUsage, len(in.Constraints)), ID: sqlite.IndexID{Num: int32(len(u.plans))}}
	for n, i := range append(names, values...) {
		out.ConstraintUsage[i] = sqlite.IndexConstraintUsage{ArgvIndex: n + 1, Omit: u.columns[in.Constraints[i].Column].hidden}
	}
	if p.names = len(names); p.names == 0 {
		rows *= float64(len(u.members))
	}
	out.EstimatedCost, out.EstimatedRows = rows+float64(len(u.members)), int64(rows)+1
	p.sql = u.selects(in.ColumnsUsed, terms)
	u.plans = append(u.plans, p)
	return out, nil
}

func (u *union) key(column string) *Key {
	for i := range u.keys {
		if u.keys[i].Column == column {
			return &u.keys[i]
		}
	}
	return nil
}

// selects writes the SELECT for each member. It includes only the columns in
// used and the key columns, since some columns cost more than finding the row.
func (u *union) selects(used uint64, terms []string) string {
	var columns []string
	for i, c := range u.columns[1:] {
		if c.key || used&(1<<min(i+1, 63)) != 0 {
			columns = append(columns, quoted(c.name))
		} else {
			columns = append(columns, "NULL")
		}
	}
	sql := "SELECT " + strings.Join(columns, ", ") + " FROM " + quoted(u.name)
	if len(terms) > 0 {
		sql += " WHERE " + strings.Join(terms, " AND ")
	}
	return sql
}

// unionCursor reads the members one after the other.
type unionCursor struct {
	u      *union
	p      plan
	names  []string // a row's member must be in each of these
	values []any
	stmts  []*Stmt  // by member, kept for the next Filter
	texts  []string // of stmts
	at     int      // index of the current member; len(members) at the end
	open   bool     // a statement is running
}

func (r *unionCursor) Filter(id sqlite.IndexID, argv []sqlite.Value) error {
	r.p, r.names, r.values, r.at, r.open = r.u.plans[id.Num], nil, nil, -1, false
	for _, v := range argv[:r.p.names] {
		r.names = append(r.names, v.Text())
	}
	for _, v := range argv[r.p.names:] {
		r.values = append(r.values, plain(v))
	}
	return r.Next()
}

// Next advances to the next row, of this or a later member.
func (r *unionCursor) Next() error {
	for !r.EOF() {
		if r.open {
			if more, err := r.stmts[r.at].Step(); err != nil || more {
				return err
			}
		}
		r.at++
		if r.open = !r.EOF() && r.wanted(); r.open {
			if err := r.begin(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *unionCursor) wanted() bool {
	for _, name := range r.names {
		if name != r.u.members[r.at].name {
			return false
		}
	}
	return true
}

// begin starts reading a member.
func (r *unionCursor) begin() (err error) {
	stmt := r.stmts[r.at]
	if stmt == nil || r.texts[r.at] != r.p.sql {
		if stmt != nil {
			stmt.Finalize()
		}
		if stmt, _, err = r.u.members[r.at].c.PrepareTransient(r.p.sql); err != nil {
			r.stmts[r.at] = nil
			return err
		}
		r.stmts[r.at], r.texts[r.at] = stmt, r.p.sql
	}
	if err := stmt.Reset(); err != nil {
		return err
	}
	for i, v := range r.values {
		bind(stmt, i+1, v)
	}
	if r.p.key != nil {
		text, _ := r.values[r.p.keyed].(string)
		for name, v := range r.p.key.Params(text) {
			stmt.SetText(name, v)
		}
	}
	return nil
}

func (r *unionCursor) EOF() bool { return r.at >= len(r.u.members) }

// RowID returns the same number for a row however it was found. SQLite needs
// that to return a row once if several OR terms match it.
func (r *unionCursor) RowID() (int64, error) {
	h := fnv.New64a()
	fmt.Fprintln(h, r.at)
	for i, c := range r.u.columns[1:] {
		if c.key {
			stmt := r.stmts[r.at]
			fmt.Fprintf(h, "%d %q\n", stmt.ColumnType(i), stmt.ColumnText(i))
		}
	}
	return int64(h.Sum64()), nil
}

func (r *unionCursor) Column(i int, _ bool) (sqlite.Value, error) {
	if i == 0 {
		return sqlite.TextValue(r.u.members[r.at].name), nil
	}
	stmt := r.stmts[r.at]
	switch i--; stmt.ColumnType(i) {
	case sqlite.TypeInteger:
		return sqlite.IntegerValue(stmt.ColumnInt64(i)), nil
	case sqlite.TypeFloat:
		return sqlite.FloatValue(stmt.ColumnFloat(i)), nil
	case sqlite.TypeText:
		return sqlite.TextValue(stmt.ColumnText(i)), nil
	case sqlite.TypeBlob:
		b := make([]byte, stmt.ColumnLen(i))
		stmt.ColumnBytes(i, b)
		return sqlite.BlobValue(b), nil
	}
	return sqlite.Value{}, nil
}

func (r *unionCursor) Close() error {
	for _, stmt := range r.stmts {
		if stmt != nil {
			stmt.Finalize() // its error has been returned
		}
	}
	return nil
}

// plain copies a value that is valid only during a call.
func plain(v sqlite.Value) any {
	switch v.Type() {
	case sqlite.TypeInteger:
		return v.Int64()
	case sqlite.TypeFloat:
		return v.Float()
	case sqlite.TypeText:
		return v.Text()
	case sqlite.TypeBlob:
		return v.Blob()
	}
	return nil
}

func bind(stmt *Stmt, i int, v any) {
	switch v := v.(type) {
	case int64:
		stmt.BindInt64(i, v)
	case float64:
		stmt.BindFloat(i, v)
	case string:
		stmt.BindText(i, v)
	case []byte:
		stmt.BindBytes(i, v)
	default:
		stmt.BindNull(i)
	}
}
