// Package jail lets a daemon that is root start programs which hostile guests speak to as somebody who is
// nobody else: a user of their own without capabilities, in namespaces of their own, with a root directory in
// which there is nothing but programs, libraries and the files that were shown to them.
//
// It is not a sandbox of system calls (QEMU has one of its own), bounds nothing (see package cgroup), and
// knows neither machines nor networks.
//
// # Files
//
// A file that is shown is a mount of its own, at the path that it has on the host, by which its owner is the
// user in the jail (an idmapped mount, mount_setattr(2)), and which can be for reading only. On the disk nothing
// changes: what the jailed user makes larger still is the owner's, no user has to be remembered, and two
// jails may be shown one file. The mounts are in the jail's mount namespace, and end with its last process: whoever dies
// at any instant leaves none.
//
// What is shown stays what it was: a file that takes another's place on the host has to be shown again. One
// that is removed keeps its blocks until the mount goes, which [Show] sees to.
//
// # Users
//
// A user is the hash of a name in a range that nobody gives out (see [User]). None is in /etc/passwd.
//
// # Traps
//
// All that changes namespaces runs in a thread that ends with it (see [Thread]): the rest of the program stays
// where it is. After [Cell.Start] has moved its thread, paths there are those of the jail.
package jail
