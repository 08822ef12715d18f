package network

import (
	"errors"
	"io/fs"
	"time"

	"holt/internal/engine/machine"
	"holt/internal/network/netstack"
)

// namesFile has the names and addresses that the resolver gave to the guest, see [netstack.Known]. After a pause or a
// kill of the process the guest may still use an address without asking for its name again.
const namesFile = "network-names.json"

// names is the content of that file.
type names struct {
	// Rested is when the process ended with its machine. The time until the next process starts does not count
	// towards the names' expiry, since it does not pass in the guest. Zero: the process runs, or was killed.
	Rested time.Time           `json:"rested,omitzero"`
	Known  few[netstack.Known] `json:"known"`
}

// at returns the names for a process that starts at now.
func (n names) at(now time.Time) []netstack.Known {
	if rest := now.Sub(n.Rested); !n.Rested.IsZero() && rest > 0 {
		for i := range n.Known {
			n.Known[i].Until = n.Known[i].Until.Add(rest)
		}
	}
	return n.Known
}

// recall takes over the names of the process before this one.
func (p *process) recall() {
	var n names
	if err := readKept(p.dir, namesFile, &n); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			p.log.Warn("read names of the former process", "err", err)
		}
		return
	}
	p.stack.Recall(n.at(time.Now()))
}

// Inherit copies the names of one machine's network to that of another, which has not started: a fork continues with
// the addresses that its parent knew. They do not extend the fork's policy.
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

// keepNames writes the names if there are new ones. ended: the process ends with its machine.
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
