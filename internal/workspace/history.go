package workspace

import (
	"context"
	"fmt"
	"path"
	"time"

	"holt"
	"holt/internal/store/db"
)

// Event is one state of a file or directory, from one change of it to the next.
// Changes by the same writer between two checkpoints are one.
type Event struct {
	At         time.Time // when it became so: its ctime or, where a restore brought that back, the time of the checkpoint before
	By         Writer    // who changed it
	Author     Writer    // whom its bytes are attributed to: a restore changes a file but is not its author
	Size       int64
	Gone       bool         // it was removed by By
	Checkpoint CheckpointID // the first that sees this state; 0: none
}

// History returns what became of the file or directory at a path, newest
// first; of the last that was there, if it is gone. NotFound if there never was
// one that a checkpoint or the present sees.
func (w *Workspace) History(ctx context.Context, file string) (events []Event, err error) {
	paths, err := cleanPaths([]string{file})
	if err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, diskError("look at history", err)
	}
	err = w.tree.index.db.Read(ctx, func(tx *db.Tx) error {
		p := point{tx, nowVersion}
		e, err := p.latest(paths[0])
		if err != nil {
			return err
		}
		if e.ino == 0 {
			return holt.Errorf(holt.NotFound, "%s does not exist and never did", paths[0]).WithHint("the history of a renamed directory is under its new path")
		}
		if e.died != 0 {
			by, err := p.writerOf(e.died)
			if err != nil {
				return err
			}
			events = append(events, Event{By: by, Gone: true})
		}
		return p.states(e, &events)
	})
	return events, err
}

// latest returns the entry at a path, or the last that was there.
func (p point) latest(file string) (placedEntry, error) {
	e, err := p.walk(file)
	if err != nil || e.ino != 0 {
		return e, err
	}
	d, err := p.walk(path.Dir(file))
	if err != nil || d.ino == 0 {
		return placedEntry{}, err
	}
	err = p.tx.Query("SELECT "+entryColumns+", died FROM past_entry WHERE parent = ?1 AND name = ?2 ORDER BY cookie DESC LIMIT 1",
		[]any{int64(d.ino), []byte(path.Base(file))}, func(r *db.Row) error {
			e = scanEntry(r)
			e.died = uint32(r.Int64(5))
			return nil
		})
	return e, err
}

// states appends the rows of an inode, up to the death of an entry of it.
func (p point) states(e placedEntry, events *[]Event) error {
	type state struct {
		Event
		born, died, author uint32
	}
	var states []state
	end := int64(nowVersion)
	if e.died != 0 {
		end = int64(e.died) - 1
	}
	// A change is no older than the last checkpoint before it: a restore, which
	// takes one first, brings old times back.
	const columns = "max(ctime, coalesce((SELECT max(time) FROM checkpoint c WHERE c.version < i.born), 0)), size, writer, born, nlink, %s, (SELECT min(id) FROM checkpoint c WHERE c.version >= i.born"
	query := fmt.Sprintf("SELECT "+columns+") FROM inode i WHERE ino = ?1 AND born <= ?2 UNION ALL SELECT "+columns+
		" AND c.version < i.died) FROM past_inode i WHERE ino = ?1 AND born <= ?2 ORDER BY 4 DESC", "0", "died")
	err := p.tx.Query(query, []any{int64(e.ino), end}, func(r *db.Row) error {
		s := state{born: uint32(r.Int64(3)), died: uint32(r.Int64(5)), author: uint32(r.Int64(2))}
		if s.Gone = r.Int64(4) == 0; !s.Gone {
			s.At, s.Size, s.Checkpoint = time.Unix(0, r.Int64(0)).UTC(), r.Int64(1), CheckpointID(r.Int64(6))
		}
		states = append(states, s)
		return nil
	})
	if err != nil {
		return err
	}
	for i, s := range states {
		if i > 0 && s.died < states[i-1].born && !s.Gone { // it was not there for a while
			gone := Event{Gone: true}
			if gone.By, err = p.writerOf(s.died); err != nil {
				return err
			}
			*events = append(*events, gone)
		}
		if s.By, err = p.writerOf(s.born); err != nil {
			return err
		}
		if !s.Gone {
			if s.Author, err = p.writerByID(s.author); err != nil {
				return err
			}
		}
		*events = append(*events, s.Event)
	}
	return nil
}

// Blame returns who last wrote what is at a path now: for what a run wrote, the
// run. The zero Writer if it is unknown. NotFound if there is nothing.
func (w *Workspace) Blame(ctx context.Context, file string) (author Writer, err error) {
	paths, err := cleanPaths([]string{file})
	if err != nil {
		return Writer{}, err
	}
	if err := w.Flush(); err != nil {
		return Writer{}, diskError("look at history", err)
	}
	err = w.tree.index.db.Read(ctx, func(tx *db.Tx) error {
		p := point{tx, nowVersion}
		e, err := p.walk(paths[0])
		if err != nil {
			return err
		}
		in, err := p.inode(e.ino)
		if err != nil {
			return err
		}
		if in == nil {
			return holt.Errorf(holt.NotFound, "%s does not exist", paths[0]).WithHint("its history shows what happened to it")
		}
		author, err = p.writerByID(in.writer)
		return err
	})
	return author, err
}

func (p point) writerByID(id uint32) (w Writer, err error) {
	err = p.tx.Query("SELECT kind, name, run, terminal, token FROM writer WHERE id = ?1", []any{int64(id)}, func(r *db.Row) error {
		w = Writer{r.Text(0), r.Text(1), r.Text(2), r.Text(3), r.Text(4)}
		return nil
	})
	return w, err
}
