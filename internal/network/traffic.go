package network

import (
	"cmp"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"sync"

	"holt"
	"holt/internal/engine/machine"
)

// mostDestinations is the number of destinations with counters of their own; the others share one.
const mostDestinations = 1024

// totals is the traffic of the processes before this one.
type totals struct {
	before []holt.Traffic
	mu     *sync.Mutex
	last   *[]holt.Traffic // as written last
}

// readTotals reads the traffic of the processes before this one.
func readTotals(dir *machine.Dir) totals {
	t := totals{mu: new(sync.Mutex), last: new([]holt.Traffic)}
	t.before, _ = readTraffic(dir) // an unreadable file counts as empty
	for i := range t.before {
		t.before[i].Open = 0
	}
	return t
}

// readTraffic reads the traffic file. It returns nil if there is none.
func readTraffic(dir *machine.Dir) ([]holt.Traffic, error) {
	var all few[holt.Traffic]
	if err := readKept(dir, trafficFile, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return all, nil
}

// write writes the sum of before and now, if it has changed.
func (t totals) write(dir *machine.Dir, now []holt.Traffic) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := sum(t.before, now)
	if reflect.DeepEqual(all, *t.last) {
		return nil
	}
	if err := keep(dir, trafficFile, all); err != nil {
		return err
	}
	*t.last = all
	return nil
}

// sum adds up traffic by destination. If there are too many destinations, those with the least traffic share one entry.
func sum(parts ...[]holt.Traffic) []holt.Traffic {
	by := map[string]holt.Traffic{}
	for _, part := range parts {
		for _, one := range part {
			by[one.Destination] = add(by[one.Destination], one)
		}
	}
	all := make([]holt.Traffic, 0, len(by))
	for destination, one := range by {
		one.Destination = destination
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b holt.Traffic) int {
		return cmp.Or(cmp.Compare(b.Sent+b.Received, a.Sent+a.Received), strings.Compare(a.Destination, b.Destination))
	})
	if len(all) > mostDestinations {
		var rest holt.Traffic
		kept := all[:0]
		for i, one := range all {
			if i >= mostDestinations-1 || one.Destination == "" {
				rest = add(rest, one)
			} else {
				kept = append(kept, one)
			}
		}
		rest.Destination = ""
		all = append(kept, rest)
	}
	slices.SortFunc(all, func(a, b holt.Traffic) int { return strings.Compare(a.Destination, b.Destination) })
	return all
}

func add(a, b holt.Traffic) holt.Traffic {
	a.Sent += b.Sent
	a.Received += b.Received
	a.Connections += b.Connections
	a.Open += b.Open
	a.Refused += b.Refused
	return a
}
