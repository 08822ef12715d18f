// Package jail lets a root daemon start programs that hostile guests talk to, each as a unique
// user without capabilities, in its own namespaces, with a root directory that has only programs,
// libraries, and the files shown to it.
//
// It is not a sandbox of system calls (QEMU has one), sets no resource limits (see package cgroup),
// and knows neither machines nor networks.
//
// # Files
//
// A file that is shown is bind-mounted at its path on the host, with its owner mapped to the jail's
// user (an idmapped mount, mount_setattr(2)), optionally read-only. The disk does not change: a file
// that the jailed user extends still belongs to its owner, no user has to be stored, and two jails can
// be shown one file. The mounts are in the jail's mount namespace and end with its last process, so a
// crash at any point leaves none.
//
// A mount keeps showing the same file: if another file replaces it on the host, it must be shown again.
// A removed file keeps its blocks until its mount is removed; [Show] does that.
//
// # Users
//
// A user is the hash of a name, in a range that is not otherwise allocated (see [User]). No such user
// is in /etc/passwd.
//
// # Traps
//
// Code that changes namespaces runs in a thread that ends with it (see [Thread]), so that the rest of
// the program is not affected. After [Cell.Start], paths in its thread are those of the jail.
package jail
