package servertest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"holt"
	"holt/internal/audit"
	"holt/internal/control"
	"holt/internal/idempotency"
	"holt/internal/nouns"
	"holt/internal/schedule"
	"holt/internal/store/db"
	"holt/internal/upload"
)

// scheduled is the computers as schedules see them. The schedules are the real ones.
type scheduled struct {
	computers
	m *Memory
}

// openSchedules opens the schedules, with a database of their own.
func (m *Memory) openSchedules() {
	err := os.MkdirAll(m.dir, 0o700)
	if err == nil {
		m.control, err = db.Open(filepath.Join(m.dir, "holt.db"), control.Schema, "")
	}
	if err == nil {
		m.keys = idempotency.New(m.control)
		err = m.control.Write(context.Background(), func(tx *db.Tx) error { // the token of Secret, which may make others
			return tx.Exec(`INSERT OR IGNORE INTO token (id, name, hash, created, expires, tenant, scopes, maker) VALUES (?, 'test', x'', 0, 0, 'default', '["admin"]', '')`, secretID)
		})
	}
	if err == nil {
		m.schedules, err = schedule.Open(context.Background(), schedule.Config{DB: m.control, Keys: m.keys, Computers: scheduled{computers{m}, m}, Log: slog.New(slog.DiscardHandler)})
	}
	if err == nil {
		err = m.openPreviews()
	}
	if err == nil {
		m.log, err = audit.Open(filepath.Join(m.dir, "audit"), slog.New(slog.DiscardHandler))
	}
	if err == nil {
		m.uploads, err = upload.Open(context.Background(), upload.Config{DB: m.control, Keys: m.keys, Dir: filepath.Join(m.dir, "uploads"),
			Computers: uploaded{files{m}, func(ctx context.Context, ref string) (string, error) {
				c, err := computers{m}.Get(ctx, ref)
				return string(c.ID), err
			}},
			Workspaces: uploaded{workspaceFiles{m}, func(ctx context.Context, ref string) (string, error) {
				ws, err := workspaces{m}.Get(ctx, ref)
				return string(ws.ID), err
			}}})
	}
	if err != nil {
		panic(err) // it is a test's directory
	}
}

// uploaded are the files that uploads write.
type uploaded struct {
	nouns.Files
	known func(context.Context, string) (string, error)
}

func (u uploaded) Known(ctx context.Context, ref string) (string, error) { return u.known(ctx, ref) }

// closeSchedules closes them, if they were opened.
func (m *Memory) closeSchedules() {
	if m.schedules != nil {
		m.uploads.Close()
		_ = m.schedules.Close() // they wait for their goroutines, and nothing else
		_ = m.control.Close()
		_ = m.log.Close()
	}
}

// forgetSchedules removes those of a computer that is gone, and names them.
func (m *Memory) forgetSchedules(ctx context.Context, id holt.ComputerID) (names []string, err error) {
	if m.schedules == nil {
		return nil, nil
	}
	of := schedule.Belongings{DB: m.control}
	if names, err = of.Of(ctx, id); err == nil {
		err = m.control.Write(ctx, func(tx *db.Tx) error { return of.Forget(tx, id) })
	}
	return names, err
}

func (s scheduled) Check(spec holt.RunSpec) error {
	if (spec.Command == "") == (len(spec.Argv) == 0) {
		return holt.Errorf(holt.InvalidArgument, "a run needs either a command or an argv")
	}
	return nil
}

func (s scheduled) Start(ctx context.Context, id holt.RunID, computer holt.ComputerID, spec holt.RunSpec) (holt.Run, error) {
	if is, err := s.Run(ctx, id); err == nil {
		return is, nil
	}
	by, _ := holt.ActorOf(ctx)
	return runs{s.m}.begin(holt.Run{ID: id, Schedule: by.Name}, string(computer), spec, "")
}

func (s scheduled) Wake(_ context.Context, id holt.ComputerID) error {
	_, err := s.turn(string(id), "", holt.ComputerRunning)
	return err
}

func (s scheduled) Run(ctx context.Context, id holt.RunID) (holt.Run, error) {
	return runs{s.m}.Get(ctx, id)
}

func (s scheduled) Signal(ctx context.Context, id holt.RunID, signal string) error {
	return runs{s.m}.Signal(ctx, id, signal, "")
}

// Rest has no machine to look into.
func (s scheduled) Rest(_ context.Context, id holt.ComputerID, as holt.ComputerState) error {
	_, err := s.turn(string(id), "", as)
	return err
}
