package workspace

import (
	"holt"
	"syscall"
)

// Workspace is an open workspace: its life, its figures, its epochs, its queries.
type Workspace struct{ tree *Tree }

// Tree is the POSIX side: one method per FUSE operation. Errors are syscall.Errno.
type Tree struct{}

// Create makes an empty workspace in dir, which must be absent or empty, and opens it.
func Create(dir string, opt Options) (*Workspace, error) {
	return nil, holt.Errorf(holt.Unsupported, "create workspace: not built yet")
}

// Open opens the workspace in dir, recovering what the journal holds. A second
// opener, in this process or another, is refused with Conflict.
func Open(dir string, opt Options) (*Workspace, error) {
	return nil, holt.Errorf(holt.Unsupported, "open workspace: not built yet")
}

// Tree returns the POSIX side of the workspace.
func (w *Workspace) Tree() *Tree { return w.tree }

// Close writes everything to the index, syncs, and lets go of the lock.
func (w *Workspace) Close() error { return nil }

// Stat returns the workspace's figures.
func (w *Workspace) Stat() Stats { return Stats{} }

// Flush writes every answered operation to the index; queries see them.
func (w *Workspace) Flush() error { return nil }

// EpochInfo describes an open epoch.
type EpochInfo struct {
	Epoch Epoch
	ID    [16]byte
	Kind  MountKind
}

// Epochs lists the open epochs, oldest first.
func (w *Workspace) Epochs() []EpochInfo { return nil }

// BeginEpoch opens the epoch of the mount with this id, or finds it open:
// resumed says that it was.
func (w *Workspace) BeginEpoch(id [16]byte, kind MountKind) (e Epoch, resumed bool, err error) {
	return 0, false, syscall.ENOSYS
}

// EpochInit returns the recorded INIT request and its reply.
func (w *Workspace) EpochInit(e Epoch) (req, reply []byte, ok bool) { return nil, nil, false }

// SetEpochInit records the INIT request of a mount and its reply, durably.
func (w *Workspace) SetEpochInit(e Epoch, req, reply []byte) error { return syscall.ENOSYS }

// EndEpoch says the mount is gone. With the last one, unlinked inodes are freed.
func (w *Workspace) EndEpoch(e Epoch) error { return syscall.ENOSYS }

// Acknowledge says that every request of e numbered below watermark was
// answered and its answer received: recorded answers below it are dropped.
func (w *Workspace) Acknowledge(e Epoch, watermark uint64) {}

// Lookup finds name in parent. Through a mount it counts one lookup.
func (t *Tree) Lookup(c Caller, parent Ino, name string) (Attr, error) { return Attr{}, syscall.ENOSYS }

// Forget says the kernel dropped n lookups of ino.
func (t *Tree) Forget(c Caller, ino Ino, n uint64) {}

// GetAttr returns the attributes of ino.
func (t *Tree) GetAttr(ino Ino) (Attr, error) { return Attr{}, syscall.ENOSYS }

// SetAttr changes attributes: chmod, chown, truncate, utimensat.
func (t *Tree) SetAttr(c Caller, ino Ino, set SetAttrs) (Attr, error) { return Attr{}, syscall.ENOSYS }

// Mknod makes a file, fifo, socket or device node; mode holds the type bits.
// Through a mount the new inode counts one lookup, as with the other makers.
func (t *Tree) Mknod(c Caller, parent Ino, name string, mode, rdev uint32) (Attr, error) {
	return Attr{}, syscall.ENOSYS
}

// Create makes a regular file; EEXIST if the name exists.
func (t *Tree) Create(c Caller, parent Ino, name string, mode uint32) (Attr, error) {
	return Attr{}, syscall.ENOSYS
}

// Mkdir makes a directory.
func (t *Tree) Mkdir(c Caller, parent Ino, name string, mode uint32) (Attr, error) {
	return Attr{}, syscall.ENOSYS
}

// Symlink makes a symbolic link to target.
func (t *Tree) Symlink(c Caller, parent Ino, name, target string) (Attr, error) {
	return Attr{}, syscall.ENOSYS
}

// Readlink returns a symbolic link's target.
func (t *Tree) Readlink(ino Ino) (string, error) { return "", syscall.ENOSYS }

// Link gives ino another name. Through a mount it counts one lookup.
func (t *Tree) Link(c Caller, ino, parent Ino, name string) (Attr, error) {
	return Attr{}, syscall.ENOSYS
}

// Unlink removes a name of anything but a directory.
func (t *Tree) Unlink(c Caller, parent Ino, name string) error { return syscall.ENOSYS }

// Rmdir removes an empty directory.
func (t *Tree) Rmdir(c Caller, parent Ino, name string) error { return syscall.ENOSYS }

// Rename moves a name, with the flags of renameat2(2).
func (t *Tree) Rename(c Caller, oldParent Ino, oldName string, newParent Ino, newName string, flags uint32) error {
	return syscall.ENOSYS
}

// Read fills p from offset off and returns how much; less than len(p) only at
// the end of the file. EIO when stored bytes do not match their checksums.
func (t *Tree) Read(ino Ino, off int64, p []byte) (int, error) { return 0, syscall.ENOSYS }

// Write writes data at off, extending the file.
func (t *Tree) Write(c Caller, ino Ino, off int64, data []byte) (int, error) {
	return 0, syscall.ENOSYS
}

// Fallocate reserves, punches or zeroes a range.
func (t *Tree) Fallocate(c Caller, ino Ino, off, n int64, mode uint32) error { return syscall.ENOSYS }

// Lseek finds data or a hole at or after off. ENXIO past the end.
func (t *Tree) Lseek(ino Ino, off int64, whence uint32) (int64, error) { return 0, syscall.ENOSYS }

// CopyRange makes n bytes of dst share what src holds.
func (t *Tree) CopyRange(c Caller, src Ino, srcOff int64, dst Ino, dstOff, n int64) (int64, error) {
	return 0, syscall.ENOSYS
}

// Fsync makes everything answered so far survive power loss.
func (t *Tree) Fsync(ino Ino) error { return syscall.ENOSYS }

// Sync is Fsync for the whole workspace.
func (t *Tree) Sync() error { return syscall.ENOSYS }

// ReadDir calls fn for the entries after cookie (0: from the start, with . and
// ..), until fn returns false: that entry counts as not taken. With plus the
// attributes are filled and, through a mount, each taken entry but . and ..
// counts one lookup. fn must not call the Tree.
func (t *Tree) ReadDir(c Caller, ino Ino, cookie uint64, plus bool, fn func(DirEntry) bool) error {
	return syscall.ENOSYS
}

// GetXattr returns the value; ENODATA if there is none.
func (t *Tree) GetXattr(ino Ino, name string) ([]byte, error) { return nil, syscall.ENOSYS }

// SetXattr sets an extended attribute.
func (t *Tree) SetXattr(c Caller, ino Ino, name string, value []byte, flags uint32) error {
	return syscall.ENOSYS
}

// ListXattr returns the names, sorted.
func (t *Tree) ListXattr(ino Ino) ([]string, error) { return nil, syscall.ENOSYS }

// RemoveXattr removes one; ENODATA if there is none.
func (t *Tree) RemoveXattr(c Caller, ino Ino, name string) error { return syscall.ENOSYS }

// StatFS is what df shows.
func (t *Tree) StatFS() (StatFS, error) { return StatFS{}, syscall.ENOSYS }
