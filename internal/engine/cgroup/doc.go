// Package cgroup bounds what the processes of a machine take of the host: processors, memory, number of
// processes, and turn at the disk. It knows directories, process ids and limits, no machine. It sets
// limits; it is no account of what is used.
//
// Each machine has a group, named after its directory, so that any daemon of the same data directory finds
// it again. In every hierarchy there is
//
//	BASE/holt/NAME              a machine; all of them have equal shares of the processors
//	BASE/holt-background/NAME   one that gets what nobody else wants
//	BASE/holt-daemon            the daemon itself, in version 2, where a group with groups may have no processes
//
// BASE is in version 1 the group of the daemon, so what bounds that bounds its machines. In version 2 it is the
// top of the hierarchy, unless the daemon was started in a group holt-daemon: then it is what that is in.
//
// Version 1 has a hierarchy for each controller and version 2 one for all; a host can have both, each with some
// of the controllers.
//
// Traps: a group without processes may be removed by another daemon's [Tree.Sweep] at any time, so who puts
// a process into one makes it anew if it is gone. Memory is charged where it was first touched and stays
// there when a process moves.
package cgroup
