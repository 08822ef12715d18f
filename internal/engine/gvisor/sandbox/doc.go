// Package sandbox is the inside of the engine gvisor: the only package that links
// gVisor's runtime. A program that calls [Dispatch] first in its main function can
// be a machine's keeper, gVisor's sentry and its gofer, which it starts as itself.
//
// The keeper mounts everything below one tmpfs of its mount namespace:
//
//	lower      the image's root file system, read only; all machines share its loop device
//	disk       the root disk, an ext4 image: upper and work directories
//	root       the overlay of both, which is the guest's root
//	workspace  the FUSE mount that the keeper's pump serves
//	bundle     the OCI bundle, gVisor's state, the line to the agent (two FIFOs)
//
// # Lock order and traps
//
// keeper.mu guards what requests change. gVisor's API locks threads and waits for
// its processes; it is used by one goroutine at a time, which holds mu.
//
// gVisor re-executes /proc/self/exe inside an empty root, so the program must be
// static (CGO_ENABLED=0). Mount sources must be absolute paths, also those of
// pseudo file systems, or a restore says that mounts do not match. Standard output
// must be a pipe: gVisor keeps an offset of its own for a file.
//
// While the root disk is copied the guest is paused, so nothing writes to it, and
// syncfs is enough. Freezing the file system would not survive a kill.
package sandbox
