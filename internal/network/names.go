package network

import (
	"errors"
	"io/fs"
	"time"

	"holt/internal/engine/machine"
	"holt/internal/network/netstack"
)

// namesFile has the names that addresses were given for, see [netstack.Known]: a guest that goes on with
// another process, after a pause or a kill, may have kept an address and ask for no name again.
const namesFile = "network-names.json"

// names are what is in that file.
type names struct {
	// Rested is when the process ended with its machine. What passes until the next begins does not count: to
	// the guest it is no time. Zero: it runs, or was killed.
	Rested time.Time           `json:"rested,omitzero"`
	Known  few[netstack.Known] `json:"known"`
}

// at returns the names as they count at a time, the first of a process.
func (n names) at(now time.Time) []netstack.Known {
	if rest := now.Sub(n.Rested); !n.Rested.IsZero() && rest > 0 {
		for i := range n.Known {
			n.Known[i].Until = n.Known[i].Until.Add(rest)
		}
	}
	return n.Known
}

// recall has the names count that a process before this one knew. Of what cannot be read none do.
func (p *process) recall() {
	var n names
	if err := readKept(p.dir, namesFile, &n); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			p.log.Warn("names of before", "err", err)
		}
		return
	}
	p.stack.Recall(n.at(time.Now()))
}

// Inherit has the names that addresses were given for in the machine of one directory count in that of another, whose
// network has not begun: a fork goes on with the addresses that its parent knew. What the policy does not allow, it
// does not for them either.
func (n *Networks) Inherit(from, to string) error {
	source, err := machine.OpenDir(from)
	if errors.Is(err, machine.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer source.Close()
	var known names
	err = readKept(source, namesFile, &known)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return replace(to, namesFile, known)
}

// keepNames writes the names down if there are new ones; ended: the process does, with its machine.
func (p *process) keepNames(ended bool) error {
	known, added := p.stack.Known()
	if added == p.kept && !ended || len(known) == 0 && p.kept == 0 {
		return nil
	}
	n := names{Known: known}
	if ended {
		n.Rested = time.Now()
	}
	if err := keep(p.dir, namesFile, n); err != nil {
		return err
	}
	p.kept = added
	return nil
}
