// Package image turns recipes into bootable images: a root disk, a kernel and
// an initramfs.
//
// A recipe is a small declarative file (see [Recipe]): packages, files, setup
// commands, users, services, kernel arguments. The recipes "base",
// "coding-agent", "browser" and "docker" are embedded; a path to a file works too. Building one runs
// mmdebstrap against the Debian sources that the host's own apt uses and puts
// the tree into an ext4 file without a loop mount.
//
// It is not an engine (it never boots anything: whoever has one makes the snapshots), not a disk of a computer
// (that is an overlay on [Image.Root], which is immutable once built), and not
// a package mirror.
//
// # Format
//
// Everything below the store's directory is addressed by content or by
// version, written under tmp/ and renamed into place whole:
//
//	roots/DIGEST/root.ext4     root disk, sparse, raw
//	roots/DIGEST/record.json   what it is: template, kernel version, sizes
//	roots/DIGEST/holders/NAME  a link to each directory whose disk stands on it (see [Store.Hold])
//	roots/DIGEST/snapshots/KEY-RANDOM/
//	                           a machine that was booted from it, as it was when it was ready: disk, memory,
//	                           devices; without its record only the disk is left of it (see [Store.MakeSnapshot])
//	kernels/VERSION/vmlinuz    Debian's cloud kernel
//	kernels/VERSION/modules/   its modules, pruned
//	initrds/DIGEST.cpio        initramfs: guest binary and modules in load order
//	templates/NAME.json        which root a template's last build left, and that nobody has booted it yet
//	logs/NAME.log              what the last build printed
//	locks/NAME.lock            held (flock) while NAME is built or deleted
//	locks/NAME.current.lock    held while templates/NAME.json is changed: by no build for longer than that
//	locks/DIGEST.lock          held while it is decided whether a root is in use
//	locks/snapshot-KEY.lock    held while a snapshot is made
//	tmp/RANDOM/                a build under way; its file lock is held by the builder
//
// A root's DIGEST covers the recipe, this package's version of the builder,
// the host's certificates and the apt sources; not the guest binary, which is
// in the initramfs only, so that a new holt does not rebuild root disks. A
// computer keeps the digest of its root: its modules belong to that root's
// kernel. A directory under roots or kernels is complete or absent. A snapshot belongs
// to the root that it was booted from, and goes with it; before that when nobody has used it
// for 14 days, or when all together are more than 16, or than an eighth of the disk.
//
// # Locks
//
// locks/NAME.lock or locks/snapshot-KEY.lock before the lock of a kernel or an initrd, never the reverse;
// at most one of each kind; that of a digest comes last but for NAME.current, which nothing is waited for under. tmp locks are only ever tried, never waited for.
//
// # Traps
//
// mmdebstrap leaves children and mounts when it is killed, so it runs as PID 1
// of its own PID and mount namespaces and dies with its parent. e2fsprogs
// 1.47.0 populates from a directory only, not from a tar file. A root disk's
// resize inode limits growth to 1024 times its first size.
package image
