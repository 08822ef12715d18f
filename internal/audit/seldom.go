package audit

import (
	"fmt"
	"sync"
	"time"

	"holt"
)

const (
	seldomEvery = time.Minute // one entry of each source
	seldomAll   = 2           // entries of all sources in seldomEvery, on average
	seldomBurst = 300         // entries of all sources at once
	mostSeldom  = 4096        // sources that are remembered; further ones are not recorded
)

// Seldom limits entries that callers without a credential can cause: one a minute of each source, and on average 2 a
// minute of all. An entry has the number of those that were left out since the last. Three of these limiters fill
// at most four fifths of the log in [KeepDays]. The zero Seldom is ready to use.
type Seldom struct {
	mu   sync.Mutex
	of   map[string]skipped
	used float64 // of seldomBurst, at the time at
	at   time.Time
}

// skipped is the time of a source's last entry, and the number of those that were left out since.
type skipped struct {
	at   time.Time
	more int
}

// Add reports whether to record an entry of who, and how many were left out since who's last one.
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
		s.of = map[string]skipped{}
	}
	s.of[who] = skipped{at: now}
	return one.more, true
}

// More adds the number of entries that were left out to the ref of an entry.
func More(ref string, n int) string {
	if n == 0 {
		return ref
	}
	return fmt.Sprintf("more=%d %s", n, ref)
}

// limiterOf returns the limiter of an entry whose caller has no credential, or nil. A preview link is a credential.
func (l *Log) limiterOf(e Entry) *Seldom {
	switch {
	case e.Actor != "nobody" || e.Name == "link":
		return nil
	case e.Code == "ok" || e.Code == "begun":
		return &l.visits
	}
	return &l.refused
}

// source is the key of an entry in a limiter: address, door and result.
func source(e Entry) string { return e.Door + " " + e.Code + " " + holt.Source(e.Remote) }
