package artifact

import (
	"path/filepath"
	"strings"
	"testing"

	"holt"
	"holt/internal/store/db"
)

// TestListPlans: a page of a list of 100,000 artifacts is found in an index, and nothing is sorted.
func TestListPlans(t *testing.T) {
	d, err := db.Open(filepath.Join(t.TempDir(), "holt.db"), Schema, "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	err = d.Write(t.Context(), func(tx *db.Tx) error {
		return tx.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
			INSERT INTO artifact (id, bucket, name, newest, state, type, created, computer, called) SELECT 'art_' || i, 1 + i % 2, 'name/' || i, 1, 'ready', '', 0, '', '' FROM n`)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q      holt.ArtifactQuery
		bucket int64
		after  cursor
	}{
		{q: holt.ArtifactQuery{}}, {bucket: 1}, {q: holt.ArtifactQuery{Versions: true}, after: cursor{1, "name/5", 7}},
		{q: holt.ArtifactQuery{Prefix: "name/77"}, bucket: 2, after: cursor{2, "name/777", 777}},
	} {
		condition, args := listed(c.q, c.bucket, "default", c.after)
		var plan []string
		err := d.Read(t.Context(), func(tx *db.Tx) error {
			return tx.Query(`EXPLAIN QUERY PLAN SELECT `+columns+condition, args, func(r *db.Row) error {
				plan = append(plan, r.Text(3))
				return nil
			})
		})
		if said := strings.Join(plan, "; "); err != nil || strings.Contains(said, "TEMP B-TREE") || !strings.Contains(said, "INDEX artifact_name") {
			t.Errorf("%+v: %s %v", c.q, said, err)
		} else {
			t.Logf("%+v: %s", c.q, said)
		}
	}
}
