package event

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"holt"
	"holt/internal/store/db"
)

// Store is the feed of a control database with [Schema].
type Store struct {
	Feed
	db     *db.DB
	log    *slog.Logger
	bell   chan struct{}
	notes  chan note
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Open reads the kept events, and starts to read new ones after each commit.
func Open(ctx context.Context, d *db.DB, log *slog.Logger) (*Store, error) {
	s := &Store{db: d, log: log, bell: make(chan struct{}, 1), notes: make(chan note, mostNotes)}
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.OnCommit(s.ring)
	s.ring() // for events since the read above
	s.wg.Go(func() { s.run(ctx) })
	return s, nil
}

// Close writes the notes that are left. The database is closed after it.
func (s *Store) Close() {
	s.db.OnCommit(nil)
	s.cancel()
	s.wg.Wait()
	for {
		select {
		case n := <-s.notes:
			s.write(n)
		default:
			return
		}
	}
}

func (s *Store) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

func (s *Store) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-s.notes:
			s.write(n)
			continue
		case <-s.bell:
		}
		if err := s.read(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("read events", "err", err)
		}
	}
}

// read copies new events from the database to the feed. Calls do not overlap.
func (s *Store) read(ctx context.Context) error {
	gone, last, fresh := s.gone, s.last, []numbered(nil)
	err := s.db.ReadNow(ctx, func(tx *db.Tx) error {
		if last == 0 { // earlier events are not kept
			err := tx.Query(`SELECT coalesce(min(seq) - 1, (SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0) FROM event`, nil,
				func(r *db.Row) error { gone = r.Int64(0); return nil })
			if err != nil {
				return err
			}
			last = gone
		}
		return tx.Query(`SELECT seq, at, kind, tenant, computer, computer_name, ref, name, detail FROM event WHERE seq > ? ORDER BY seq`, []any{last}, func(r *db.Row) error {
			fresh = append(fresh, scan(r))
			return nil
		})
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone, s.last = max(gone, s.gone), last
	for _, e := range fresh {
		s.add(e.n, e.Event)
	}
	if len(fresh) > 0 {
		s.wake()
	}
	return nil
}

func scan(r *db.Row) numbered {
	e := holt.Event{
		At: time.UnixMilli(r.Int64(1)).UTC(), Kind: holt.EventKind(r.Text(2)), Tenant: r.Text(3),
		Computer: holt.ComputerID(r.Text(4)), ComputerName: r.Text(5), Ref: r.Text(6), Name: r.Text(7),
	}
	var d detail
	_ = json.Unmarshal([]byte(r.Text(8)), &d) // unreadable details are left out
	e.State, e.Was, e.Reason, e.ExitCode, e.Run = d.State, d.Was, d.Reason, d.ExitCode, d.Run
	return numbered{r.Int64(0), e}
}

// detail has the fields that only some kinds of events have.
type detail struct {
	State    string     `json:"state,omitempty"`
	Was      string     `json:"was,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	ExitCode *int       `json:"exit_code,omitempty"`
	Run      holt.RunID `json:"run,omitempty"`
}

const (
	mostReason = 200  // bytes of a reason
	mostNotes  = 1024 // notes that wait to be written
)

// note is an event of a checkpoint, which has no row in the control database.
type note struct {
	kind      holt.EventKind
	workspace holt.WorkspaceID
	name      string
	reason    string
}

// Checkpoint queues an event of a checkpoint. It never blocks: it drops the event if the queue is full.
func (s *Store) Checkpoint(kind holt.EventKind, workspace holt.WorkspaceID, name, reason string) {
	select {
	case s.notes <- note{kind, workspace, name, reason}:
	default:
		s.log.Warn("event dropped: the queue of checkpoint events is full", "kind", kind, "workspace", workspace)
	}
}

func (s *Store) write(n note) {
	d, err := json.Marshal(detail{Reason: holt.Clip(n.reason, mostReason)})
	if err == nil {
		err = s.db.Write(context.Background(), func(tx *db.Tx) error {
			return tx.Exec(insertCheckpoint, n.kind, n.workspace, n.name, string(d))
		})
	}
	if err != nil {
		s.log.Error("record event", "kind", n.kind, "workspace", n.workspace, "err", err)
	}
}
