// Package image turns recipes into bootable images: a root disk, a kernel and
// an initramfs.
//
// A recipe is a small declarative file (see [Recipe]): packages, files, setup
// commands, users, services, kernel arguments. The recipes "base",
// "coding-agent", "browser" and "docker" are embedded; a path to a file works too. A build runs
// mmdebstrap with the Debian sources of the host's apt and writes the tree
// into an ext4 file without a loop mount.
//
// It is not an engine: it boots nothing, and callers pass the function that makes a snapshot. It has no disks of
// computers: those are overlays on [Image.Root], which is immutable once built. It is not a package mirror.
//
// # Format
//
// Everything below the store's directory has the name of its content's digest or
// its version, is written under tmp/, and is renamed into place:
//
//	roots/DIGEST/root.ext4     root disk, sparse, raw
//	roots/DIGEST/record.json   template, kernel version, sizes
//	roots/DIGEST/holders/NAME  a symbolic link to each directory with a disk that uses the root (see [Store.Hold])
//	roots/DIGEST/snapshots/KEY-RANDOM/
//	                           snapshot of a machine that was booted from the root and was ready: disk, memory,
//	                           devices; a snapshot without its record has only its disk (see [Store.MakeSnapshot])
//	kernels/VERSION/vmlinuz    Debian's cloud kernel
//	kernels/VERSION/modules/   its modules, pruned
//	initrds/DIGEST.cpio        initramfs: guest binary and modules in load order
//	templates/NAME.json        the root of the template's last build, and whether it has been booted
//	logs/NAME.log              output of the last build
//	locks/NAME.lock            held (flock) while NAME is built or deleted
//	locks/NAME.current.lock    held while templates/NAME.json is changed; a build does not hold it
//	locks/DIGEST.lock          held while a root is checked for users, or gets one
//	locks/snapshot-KEY.lock    held while a snapshot is made
//	tmp/RANDOM/                a build in progress; the builder holds its file lock
//
// A root's DIGEST covers the recipe, this package's version of the builder,
// the host's certificates and the apt sources. It does not cover the guest binary, which is
// in the initramfs only, so that a new holt does not rebuild root disks. A
// computer keeps the digest of its root, since its modules belong to that root's
// kernel. A directory under roots or kernels is complete or absent. A snapshot is deleted with its
// root. It is deleted earlier if it is not used for 14 days, or if there are more than 16
// snapshots, or if they take more than an eighth of the disk.
//
// # Lock order
//
//  1. locks/NAME.lock or locks/snapshot-KEY.lock
//  2. the lock of kernels
//  3. locks/DIGEST.lock
//  4. locks/NAME.current.lock, under which nothing waits
//
// At most one of each kind is held. The locks in tmp are only tried, never waited for.
//
// # Traps
//
// mmdebstrap leaves children and mounts when it is killed, so it runs as PID 1
// of its own PID and mount namespaces and dies with its parent. e2fsprogs
// 1.47.0 populates from a directory only, not from a tar file. A root disk's
// resize inode limits growth to 1024 times its first size.
package image
