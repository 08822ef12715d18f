package preview

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holt"
	"holt/internal/store/db"
)

// Schema makes the tables of this package in the control database, which must have the table of computers. Times are
// nanoseconds since 1970.
const Schema = `
CREATE TABLE preview (
	computer TEXT NOT NULL,
	port     INTEGER NOT NULL,
	public   INTEGER NOT NULL,
	serial   TEXT NOT NULL,    -- what its links are signed with, too: another row is another preview
	created  INTEGER NOT NULL,
	address  INTEGER NOT NULL DEFAULT 0, -- an IPv4 address as a number; 0: none yet
	PRIMARY KEY (computer, port)
) WITHOUT ROWID;
CREATE UNIQUE INDEX preview_address ON preview (address) WHERE address <> 0;
CREATE TABLE preview_domain (
	domain   TEXT PRIMARY KEY,
	computer TEXT NOT NULL,
	port     INTEGER NOT NULL,
	created  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX preview_domain_computer ON preview_domain (computer);
CREATE TRIGGER preview_gone AFTER DELETE ON computer BEGIN
	DELETE FROM preview WHERE computer = old.id;
	DELETE FROM preview_domain WHERE computer = old.id;
END;
`

const (
	mostPreviews = 256 // of a computer
	mostDomains  = 64  // of a computer
)

// row is a row of the table preview. The zero row is that of a port without a preview.
type row struct {
	port    int
	public  bool
	serial  string
	created time.Time
	address uint32 // see AddressSchema
}

// domain is a row of the table preview_domain.
type domain struct {
	name     string
	computer holt.ComputerID
	port     int
	created  time.Time
}

type table struct{ db *db.DB }

func (t table) rows(tx *db.Tx, where string, args ...any) (all []row, err error) {
	err = tx.Query(`SELECT port, public, serial, created, address FROM preview `+where, args, func(r *db.Row) error {
		all = append(all, row{int(r.Int64(0)), r.Int64(1) != 0, r.Text(2), time.Unix(0, r.Int64(3)).UTC(), uint32(r.Int64(4))})
		return nil
	})
	return all, err
}

func (t table) domains(tx *db.Tx, where string, args ...any) (all []domain, err error) {
	err = tx.Query(`SELECT domain, computer, port, created FROM preview_domain `+where, args, func(r *db.Row) error {
		all = append(all, domain{r.Text(0), holt.ComputerID(r.Text(1)), int(r.Int64(2)), time.Unix(0, r.Int64(3)).UTC()})
		return nil
	})
	return all, err
}

// get returns the preview of a port, or the zero row.
func (t table) get(ctx context.Context, id holt.ComputerID, port int) (one row, err error) {
	err = t.db.Read(ctx, func(tx *db.Tx) error {
		all, err := t.rows(tx, `WHERE computer = ? AND port = ?`, id, port)
		if len(all) > 0 {
			one = all[0]
		}
		return err
	})
	return one, wrap("read the preview", err)
}

// list returns the previews and the domains of a computer, or all domains with "".
func (t table) list(ctx context.Context, id holt.ComputerID) (rows []row, domains []domain, err error) {
	err = t.db.Read(ctx, func(tx *db.Tx) (err error) {
		if rows, err = t.rows(tx, `WHERE computer = ? ORDER BY port`, id); err == nil {
			domains, err = t.domains(tx, `WHERE computer = ? ORDER BY domain`, id)
		}
		return err
	})
	return rows, domains, wrap("list previews", err)
}

// put makes or changes a preview; nil does not change public.
func (t table) put(ctx context.Context, id holt.ComputerID, port int, public *bool, now time.Time) (one row, err error) {
	err = t.db.WriteSync(ctx, func(tx *db.Tx) error {
		all, err := t.rows(tx, `WHERE computer = ?`, id)
		if err != nil {
			return err
		}
		one = row{port: port, serial: newSerial(), created: now.UTC()}
		found := false
		for _, r := range all {
			if r.port == port {
				one, found = r, true
			}
		}
		if !found && len(all) >= mostPreviews {
			return holt.Errorf(holt.TooMany, "the computer has %d previews, the maximum", len(all)).WithHint("delete one first")
		}
		if public != nil {
			one.public = *public
		}
		if one.address == 0 {
			if one.address, err = t.address(tx, id, port); err != nil {
				return err
			}
		}
		return tx.Exec(`INSERT OR REPLACE INTO preview (computer, port, public, serial, created, address) VALUES (?, ?, ?, ?, ?, ?)`,
			id, one.port, one.public, one.serial, one.created.UnixNano(), one.address)
	})
	return one, wrap("write the preview", err)
}

func (t table) drop(ctx context.Context, id holt.ComputerID, port int) (found bool, err error) {
	err = t.db.WriteSync(ctx, func(tx *db.Tx) error {
		err := tx.Exec(`DELETE FROM preview WHERE computer = ? AND port = ?`, id, port)
		found = tx.Changes() > 0
		return err
	})
	return found, wrap("delete the preview", err)
}

// domain returns the domain with a name, if there is one.
func (t table) domain(ctx context.Context, name string) (one domain, found bool, err error) {
	err = t.db.Read(ctx, func(tx *db.Tx) error {
		all, err := t.domains(tx, `WHERE domain = ?`, name)
		if len(all) > 0 {
			one, found = all[0], true
		}
		return err
	})
	return one, found, wrap("read the domain", err)
}

// putDomain stores a domain, or returns AlreadyExists if another computer has it.
func (t table) putDomain(ctx context.Context, one domain) error {
	return wrap("write the domain", t.db.WriteSync(ctx, func(tx *db.Tx) error {
		had, err := t.domains(tx, `WHERE domain = ?`, one.name)
		if err != nil {
			return err
		}
		if len(had) > 0 && had[0].computer != one.computer {
			return holt.Errorf(holt.AlreadyExists, "the domain %s belongs to another computer", one.name).WithHint("delete it there first")
		}
		all, err := t.domains(tx, `WHERE computer = ?`, one.computer)
		if err == nil && len(had) == 0 && len(all) >= mostDomains {
			err = holt.Errorf(holt.TooMany, "the computer has %d domains, the maximum", len(all)).WithHint("delete one first")
		}
		if err != nil {
			return err
		}
		return tx.Exec(`INSERT OR REPLACE INTO preview_domain (domain, computer, port, created) VALUES (?, ?, ?, ?)`,
			one.name, one.computer, one.port, one.created.UnixNano())
	}))
}

func (t table) dropDomain(ctx context.Context, id holt.ComputerID, name string) (found bool, err error) {
	err = t.db.WriteSync(ctx, func(tx *db.Tx) error {
		err := tx.Exec(`DELETE FROM preview_domain WHERE computer = ? AND domain = ?`, id, name)
		found = tx.Changes() > 0
		return err
	})
	return found, wrap("delete the domain", err)
}

func wrap(verb string, err error) error {
	var e *holt.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("%s: %w", verb, err)
}
