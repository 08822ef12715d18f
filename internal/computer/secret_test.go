package computer

import (
	"testing"

	"holt"
	"holt/internal/store/db"
)

// TestSecrets: a computer's CA is made once and is its forks'; its secrets are its forks' only if that was asked for,
// and go with it.
func TestSecrets(t *testing.T) {
	_, d := openKeys(t)
	s := &Store{registry: &registry{cfg: Config{DB: d}}}
	s.table.d = d
	ctx := t.Context()
	parent := record{Computer: holt.Computer{ID: "cmp_a", Name: "curie"}}
	fork := func(id holt.ComputerID, with bool) *record {
		return &record{Computer: holt.Computer{ID: id, Name: "bohr", Parent: &holt.Origin{ID: parent.ID}}, withSecrets: with}
	}
	put := func(tx *db.Tx) error {
		return tx.Exec(`INSERT INTO secret VALUES ('cmp_a', 'API_KEY', 'api.example', '', '', 0, 'sk-hunter2', 7)`)
	}
	for _, act := range []func(*db.Tx) error{
		func(tx *db.Tx) error { return inheritSecrets(tx, fork("cmp_early", true)) },
		func(tx *db.Tx) error { return authorize(tx, parent) },
		func(tx *db.Tx) error { return authorize(tx, parent) }, put,
		func(tx *db.Tx) error { return inheritSecrets(tx, fork("cmp_bare", false)) },
		func(tx *db.Tx) error { return inheritSecrets(tx, fork("cmp_same", true)) },
		func(tx *db.Tx) error { return inheritSecrets(tx, &parent) },
		func(tx *db.Tx) error {
			return inheritSecrets(tx, &record{Computer: holt.Computer{ID: "cmp_job", Name: "job"}, secretsOf: "cmp_a"})
		},
	} {
		if err := writeSync(ctx, d, act); err != nil {
			t.Fatal(err)
		}
	}
	of := func(id holt.ComputerID) secretsRecord {
		t.Helper()
		all, err := s.cfg.secretsOf(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	ca := of("cmp_a").given.Certificate
	for id, want := range map[holt.ComputerID]struct {
		ca string
		n  int
	}{"cmp_a": {ca, 1}, "cmp_bare": {ca, 0}, "cmp_same": {ca, 1}, "cmp_early": {"", 0}} {
		if all := of(id); all.given.Certificate != want.ca || len(all.shown) != want.n || len(all.given.Hosts) != want.n {
			t.Errorf("%s has %+v", id, all.shown)
		}
	}
	if ca == "" || of("cmp_same").given.Hosts[0].Value != "sk-hunter2" {
		t.Error("a secret is lost on its way")
	}
	if all := of("cmp_job"); all.given.Certificate == "" || all.given.Certificate == ca || len(all.given.Hosts) != 1 || all.given.Hosts[0].Value != "sk-hunter2" {
		t.Errorf("a computer that is made with another's secrets has %+v", all.shown)
	}
	if err := s.table.erase(ctx, "cmp_a"); err != nil {
		t.Fatal(err)
	}
	if all := of("cmp_a"); all.given.Certificate != "" || len(all.given.Hosts) != 0 {
		t.Error("secrets of a computer that is deleted are there")
	}
	if all := of("cmp_same"); len(all.given.Hosts) != 1 {
		t.Error("a fork's went with its parent's")
	}
}
