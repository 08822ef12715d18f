package computer

import (
	"context"
	"strings"
	"sync"
	"time"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/workspace"
)

// terminalSet keeps the records of one machine's terminals up to date.
type terminalSet struct {
	l     *live
	table terminalTable
	work  *terminalSessions

	launches launches[holt.TerminalID]

	mu     sync.Mutex
	here   map[holt.TerminalID]string // names of those on record, as far as was asked
	visits []visit                    // sessions, the newest last; see [Sessions]
}

func newTerminalSet(l *live, table terminalTable) *terminalSet {
	return &terminalSet{l: l, table: table, work: newTerminalSessions(l.limits, l.beginWork, l.endWork), here: map[holt.TerminalID]string{}}
}

// take records what the guest says of a terminal, and returns it as shown. The spec is that of the
// record, the state that of the guest.
func (s *terminalSet) take(ctx context.Context, told holt.Terminal) (holt.Terminal, error) {
	told.ComputerID = s.l.id
	now := time.Now().UTC()
	if told.StartedAt.After(now) || told.StartedAt.UnixNano() <= 0 {
		told.StartedAt = now
	}
	begun := told
	begun.State = holt.TerminalRunning
	if err := s.table.insert(ctx, begun, nil); err != nil {
		return holt.Terminal{}, err
	}
	if told.State == holt.TerminalExited {
		if err := s.table.exited(ctx, told); err != nil {
			return holt.Terminal{}, err
		}
	}
	list, err := s.table.list(ctx, `WHERE computer = ? AND id = ?`, s.l.id, told.ID)
	if err != nil || len(list) == 0 {
		return told, err
	}
	return merged(list[0], told), nil
}

// merged is a record with what only the guest knows.
func merged(record, told holt.Terminal) holt.Terminal {
	if record.State == holt.TerminalRunning {
		record.Size, record.Attached = told.Size, told.Attached
	}
	return record
}

// reconcile compares the terminals on record with the guest's, and returns the guest's. Terminals
// of a forked guest are added to the record. At the beginning of a session (begins) terminals that
// have ended on record may be running again after a restore.
func (s *terminalSet) reconcile(ctx context.Context, c *agent.Client, begins bool) (map[holt.TerminalID]holt.Terminal, error) {
	asked := s.launches.ask()
	defer asked.done()
	told, err := c.Terminals(ctx)
	if err != nil {
		return nil, err
	}
	return s.compare(ctx, asked, told, begins)
}

func (s *terminalSet) compare(ctx context.Context, asked *question[holt.TerminalID], told []holt.Terminal, begins bool) (map[holt.TerminalID]holt.Terminal, error) {
	recorded, err := s.table.list(ctx, `WHERE computer = ? AND state = 'running'`, s.l.id)
	if err != nil {
		return nil, err
	}
	has := make(map[holt.TerminalID]holt.Terminal, len(told))
	for _, one := range told {
		has[one.ID] = one
	}
	running := map[holt.TerminalID]bool{}
	for _, record := range recorded {
		running[record.ID] = true
		one, known := has[record.ID]
		switch {
		case known && one.State == holt.TerminalExited:
			_, err = s.take(ctx, one)
		case !known:
			_, err = s.table.lose(ctx, s.l.id, asked, record.ID)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, one := range told {
		if one.State == holt.TerminalRunning && !running[one.ID] && len(running) < openTerminals {
			running[one.ID] = true
			if _, err := s.take(ctx, one); err != nil {
				return nil, err
			}
			if begins {
				if err := s.table.revive(ctx, s.l.id, one.ID); err != nil {
					return nil, err
				}
			}
		}
	}
	return has, nil
}

// list returns the terminals of the machine, newest first.
func (s *terminalSet) list(ctx context.Context) ([]holt.Terminal, error) {
	var told map[holt.TerminalID]holt.Terminal
	if c, _, _ := s.l.state(); c != nil {
		bounded, cancel := context.WithTimeout(ctx, s.l.limits.Answer)
		told, _ = s.reconcile(bounded, c, false) // else the record is what there is
		cancel()
	}
	recorded, err := s.table.of(ctx, s.l.id)
	if err != nil {
		return nil, err
	}
	list := []holt.Terminal{}
	for _, record := range recorded {
		one, known := told[record.ID]
		switch {
		case known:
			list = append(list, merged(record, one))
		case !s.launches.claimed(record.ID): // else it may turn out to be another one
			list = append(list, record)
		}
	}
	return list, nil
}

// trackTerminals is how often a guest with terminals is asked whether some have ended.
const trackTerminals = 5 * time.Second

// attend records the ends of terminals for as long as a session lasts.
func (s *terminalSet) attend(c *agent.Client) {
	tick := time.NewTicker(trackTerminals)
	defer tick.Stop()
	for {
		select {
		case <-s.l.ctx.Done():
			return
		case <-c.Done():
			return
		case <-tick.C:
		}
		s.work.tick()
		open, err := s.table.list(s.l.ctx, `WHERE computer = ? AND state = 'running' LIMIT 1`, s.l.id)
		if err != nil || len(open) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(s.l.ctx, s.l.limits.Answer)
		if _, err := s.reconcile(ctx, c, false); err != nil && s.l.ctx.Err() == nil {
			s.l.log.Debug("list terminals of guest", "computer", s.l.id, "err", err)
		}
		cancel()
	}
}

// writer returns the writer of a tag that is a terminal of this computer, and extends or begins the
// terminal session: a change is about to be made.
func (s *terminalSet) writer(tag string) (workspace.Writer, bool) {
	text, ok := strings.CutPrefix(tag, "terminal/")
	if !ok {
		return workspace.Writer{}, false
	}
	id, err := holt.ParseTerminalID(text)
	if err != nil {
		return workspace.Writer{}, false
	}
	name, ok := s.known(id)
	if !ok {
		return workspace.Writer{}, false
	}
	return workspace.Writer{Kind: "terminal", Name: "agent", Run: string(s.work.changes(id, name)), Terminal: string(id)}, true
}

// known returns the name of a terminal that is or was on record.
func (s *terminalSet) known(id holt.TerminalID) (name string, ok bool) {
	s.mu.Lock()
	if name, ok = s.here[id]; !ok {
		name, ok = visited(s.visits, id)
	}
	s.mu.Unlock()
	if ok {
		return name, true
	}
	list, err := s.table.list(context.WithoutCancel(s.l.ctx), `WHERE computer = ? AND id = ?`, s.l.id, id)
	if err != nil || len(list) == 0 {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.here) >= keptTerminals+openTerminals { // a guest can tell of others, and forget these
		clear(s.here)
	}
	s.here[id] = list[0].Name
	return list[0].Name, true
}
