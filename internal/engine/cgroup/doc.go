// Package cgroup limits the host resources of a machine's processes: processors, memory, number of
// processes, and disk I/O weight. It knows directories, process ids and limits, but no machines. It
// sets limits and does not account usage.
//
// Each machine has a group named after its directory, so that any daemon of the same data directory
// finds it. Each hierarchy has
//
//	BASE/holt/NAME              a machine; all machines have equal shares of the processors
//	BASE/holt-background/NAME   a background machine; it gets processor time that nothing else needs
//	BASE/holt-daemon            the daemon itself, in version 2, where a group with subgroups may have no processes
//
// In version 1, BASE is the group of the daemon, so limits of the daemon apply to its machines. In
// version 2 it is the root of the hierarchy, or the parent of a group holt-daemon that the daemon was
// started in.
//
// Version 1 has a hierarchy for each controller, version 2 one for all; a host can have both, each with
// some of the controllers.
//
// Traps: another daemon's [Tree.Sweep] may remove a group without processes at any time, so code that
// puts a process into a group creates the group again if it is missing. Memory is charged to the group
// that first touched it and stays charged there when a process moves.
package cgroup
