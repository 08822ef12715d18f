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

// mostDestinations are kept each for itself; the others all together.
const mostDestinations = 1024

// totals are what went where before this process.
type totals struct {
	before []holt.Traffic
	mu     *sync.Mutex
	last   *[]holt.Traffic // that was written
}

// readTotals returns what the processes before this one have left.
func readTotals(dir *machine.Dir) totals {
	t := totals{mu: new(sync.Mutex), last: new([]holt.Traffic)}
	t.before, _ = readTraffic(dir) // of one that cannot be read it begins anew
	for i := range t.before {
		t.before[i].Open = 0
	}
	return t
}

// readTraffic returns what was written down last; none is none.
func readTraffic(dir *machine.Dir) ([]holt.Traffic, error) {
	var all few[holt.Traffic]
	if err := readKept(dir, trafficFile, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return all, nil
}

// write keeps what went before and now, if that is new.
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

// sum adds up what went where, what went most first to stay if there are too many destinations.
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
