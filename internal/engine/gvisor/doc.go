// Package gvisor is the engine for hosts without hardware virtualisation: a
// machine is a gVisor sandbox, whose programs run on the host's processors and
// whose kernel is gVisor's sentry, a program of this host.
//
// This package does not link gVisor. It starts a process of Options.Program, the
// keeper, whose code is in package sandbox: PID 1 of PID, mount, network, UTS and
// IPC namespaces of its own. The keeper mounts the root disk and the workspace,
// starts the sandbox, and ends with it; when it is killed, the kernel ends
// everything in its namespaces.
//
// A machine's directory is as in package machine, and has also
//
//	keeper.sock   requests to the keeper: see [Request]
//	keeper.log    the output of the keeper itself
//	ended         how the machine ended
//
// # Disks
//
// A root disk is a sparse file: a header of 4 KiB (see [DiskHeader]) and an ext4
// image with the upper layer of an overlayfs. The lower layer is the image's root
// file system, a raw ext4 image that the header names. A disk over another disk is
// a copy of it, by reflink where the host's file system has that. So a disk needs
// no other one, and its base is only a record.
//
// A snapshot copies the disk in use; then the copy gets the disk's name, and the
// disk in use, which the kernel has open, the new name. Its header, which comes
// first, says what its base is under either name. A keeper that is killed in
// between leaves the disk in use with both names. That is right too: whatever
// needs the frozen disk is the image, and its record is written last.
//
// # Memory images
//
// memory is gVisor's file of pages. state is its other two files: the sentry's
// state, the table of pages, and the length of the table (8 bytes, big endian). A
// restored machine reads its own copy of the memory; forks share none.
//
// gVisor restores only images of its own version. The program of each version that
// was here is kept (see [Options]), so that images outlive an upgrade of holt.
package gvisor
