package audit

import (
	"fmt"
	"sync"
	"time"

	"holt"
)

const (
	seldomEvery = time.Minute // one of each
	seldomAll   = 2           // of all together, in seldomEvery in the long run
	seldomBurst = 300         // and so many at once
	mostSeldom  = 4096        // that are remembered; who comes when all of them are busy is not written down
)

// Seldom bounds how much is written down that anybody can make happen: of each of many the first in a minute, with how
// many there were since the last one, and of all of them 2 a minute in the long run. So the three that
// there are fill no more than four fifths of the log in the days for which entries stay. The zero Seldom is ready.
type Seldom struct {
	mu   sync.Mutex
	of   map[string]often
	used float64   // of seldomBurst
	at   time.Time // when that was so
}

// often is when one was written down last, and how often it was not since.
type often struct {
	at   time.Time
	more int
}

// Add counts one, and says whether to write it down, and how many were not since the one that was.
func (s *Seldom) Add(who string, now time.Time) (more int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, known := s.of[who]
	if known && now.Sub(one.at) < seldomEvery {
		one.more++
		s.of[who] = one
		return 0, false
	}
	if !known && len(s.of) >= mostSeldom {
		for other, o := range s.of {
			if now.Sub(o.at) >= seldomEvery {
				delete(s.of, other)
			}
		}
	}
	s.used, s.at = max(0, s.used-seldomAll*now.Sub(s.at).Minutes()), now
	if s.used >= seldomBurst || !known && len(s.of) >= mostSeldom {
		if known {
			one.more++
			s.of[who] = one
		}
		return 0, false
	}
	s.used++
	if s.of == nil {
		s.of = map[string]often{}
	}
	s.of[who] = often{at: now}
	return one.more, true
}

// More adds to what an entry is about how many like it were not written down.
func More(ref string, n int) string {
	if n == 0 {
		return ref
	}
	return fmt.Sprintf("more=%d %s", n, ref)
}

// strangers are the entries of callers whom nobody knows: whom a link has let in is known by it.
func (l *Log) strangers(e Entry) *Seldom {
	switch {
	case e.Actor != "nobody" || e.Name == "link":
		return nil
	case e.Code == "ok" || e.Code == "begun":
		return &l.visits
	}
	return &l.refused
}

// stranger is who is one of them: an address, at a door, with a result.
func stranger(e Entry) string { return e.Door + " " + e.Code + " " + holt.Source(e.Remote) }
