package computer

import (
	"context"
	"encoding/json"
	"fmt"

	"holt"
	"holt/internal/store/db"
)

// taken reports whether a run's output was collected since its end, or the run is not on record.
func (t runTable) taken(ctx context.Context, id holt.RunID) (bool, error) {
	taken := true
	err := read(ctx, t.d, func(tx *db.Tx) error {
		return tx.Query(`SELECT written IS NOT NULL FROM run WHERE id = ?`, []any{id}, func(row *db.Row) error {
			taken = row.Int64(0) != 0
			return nil
		})
	})
	return taken, err
}

// untaken returns those of some runs that have ended and whose output was not collected since.
func (t runTable) untaken(ctx context.Context, computer holt.ComputerID, ids []holt.RunID) (list []holt.RunID, err error) {
	among, err := json.Marshal(ids)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	err = read(ctx, t.d, func(tx *db.Tx) error {
		list, err = runIDs(tx, `SELECT id FROM run WHERE computer = ? AND state <> 'running' AND written IS NULL AND id IN (SELECT value FROM json_each(?))`,
			computer, string(among))
		return err
	})
	return list, err
}

// written returns how much a run wrote; known is false if its output was not collected since its
// end.
func (t runTable) written(ctx context.Context, id holt.RunID) (end int64, known bool, err error) {
	err = read(ctx, t.d, func(tx *db.Tx) error {
		return tx.Query(`SELECT written FROM run WHERE id = ? AND written IS NOT NULL`, []any{id}, func(row *db.Row) error {
			end, known = row.Int64(0), true
			return nil
		})
	})
	return end, known, err
}

// took records that a run's output was collected: the size of its file, 0 for none, and after its
// end how much it wrote. It returns the runs whose files must be removed so that those of ended
// runs take at most most bytes, and those of running ones likewise; also a run that is not on
// record.
func (t runTable) took(ctx context.Context, computer holt.ComputerID, id holt.RunID, bytes int64, ended bool, end, most int64) (gone []holt.RunID, err error) {
	var written any
	if ended {
		written = end
	}
	err = write(ctx, t.d, func(tx *db.Tx) error {
		there, err := runIDs(tx, `UPDATE run SET output = iif(?3 > 0, ?3, output), written = ?4 WHERE id = ?2 AND computer = ?1 RETURNING id`,
			computer, id, bytes, written)
		if err != nil || len(there) == 0 {
			gone = []holt.RunID{id}
			return err
		}
		total := int64(0)
		err = tx.Query(`SELECT sum(output) FROM run WHERE computer = ? AND output > 0`, []any{computer}, func(row *db.Row) error {
			total = row.Int64(0)
			return nil
		})
		if err != nil || total <= most {
			return err
		}
		gone, err = runIDs(tx, `UPDATE run SET output = 0 WHERE id IN (SELECT id FROM
			(SELECT id, sum(output) OVER (PARTITION BY ended > 0 ORDER BY ended DESC, seq DESC) AS upto FROM run WHERE computer = ?1 AND output > 0)
			WHERE upto > ?2) RETURNING id`, computer, most)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("record a run's output: %w", err)
	}
	return gone, nil
}

// files returns the recorded file sizes of a computer's runs.
func (t runTable) files(ctx context.Context, computer holt.ComputerID) (map[holt.RunID]int64, error) {
	files := map[holt.RunID]int64{}
	err := read(ctx, t.d, func(tx *db.Tx) error {
		return tx.Query(`SELECT id, output FROM run WHERE computer = ?`, []any{computer}, func(row *db.Row) error {
			files[holt.RunID(row.Text(0))] = row.Int64(1)
			return nil
		})
	})
	return files, err
}

// found records a file of a run's output.
func (t runTable) found(ctx context.Context, id holt.RunID, bytes int64) error {
	return write(ctx, t.d, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE run SET output = ? WHERE id = ?`, bytes, id)
	})
}

func runIDs(tx *db.Tx, sql string, args ...any) (ids []holt.RunID, err error) {
	err = tx.Query(sql, args, func(row *db.Row) error {
		ids = append(ids, holt.RunID(row.Text(0)))
		return nil
	})
	return ids, err
}
