package mount

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"holt/internal/workspace"
)

// maxCopy is the maximum of one COPY_FILE_RANGE, bytes: its reply has a 32-bit count.
const maxCopy = 1 << 30

// Open answers ENOSYS, so that the kernel sends no further OPEN and RELEASE and
// keeps a file's pages across opens. (O_TRUNC then arrives as a SETATTR, if
// FUSE_ATOMIC_O_TRUNC is off.) If nothing may be cached it succeeds instead,
// which drops the pages.
func (t *tree) Open(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status {
	if t.valid == 0 {
		return fuse.OK
	}
	return fuse.ENOSYS
}

// Flush answers ENOSYS, so that close(2) costs nothing. Writes are journaled already.
func (t *tree) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.ENOSYS }

// inPlace is a READ result that is already in the reply's buffer.
type inPlace []byte

func (r inPlace) Bytes([]byte) ([]byte, fuse.Status) { return r, fuse.OK }
func (r inPlace) Size() int                          { return len(r) }
func (r inPlace) Done()                              {}

// Readv copies nothing if dst is the buffer that was read into.
func (r inPlace) Readv(dst [][]byte) (int, fuse.Status) {
	if len(r) == 0 || len(dst) == 1 && len(dst[0]) == len(r) && &dst[0][0] == &r[0] {
		return len(r), fuse.OK
	}
	n := 0
	for _, d := range dst {
		n += copy(d, r[n:])
	}
	return n, fuse.OK
}

func (t *tree) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, err := t.ws.Read(workspace.Ino(in.NodeId), int64(in.Offset), buf)
	if err != nil {
		return nil, t.status(err)
	}
	return inPlace(buf[:n]), fuse.OK
}

func (t *tree) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if t.readOnly {
		return 0, fuse.EROFS
	}
	n, err := t.ws.Write(t.caller(&in.InHeader), workspace.Ino(in.NodeId), int64(in.Offset), data)
	return uint32(n), t.status(err)
}

func (t *tree) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if t.readOnly {
		return fuse.OK
	}
	return t.status(t.ws.Fsync(workspace.Ino(in.NodeId)))
}

func (t *tree) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	if t.readOnly {
		return fuse.EROFS
	}
	return t.status(t.ws.Fallocate(t.caller(&in.InHeader), workspace.Ino(in.NodeId), int64(in.Offset), int64(in.Length), in.Mode))
}

func (t *tree) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	ino := workspace.Ino(in.NodeId)
	a, err := t.ws.GetAttr(ino)
	if err != nil {
		return t.status(err)
	}
	off, err := seekBlocks(func(off int64, whence uint32) (int64, error) { return t.ws.Lseek(ino, off, whence) }, a.Size, int64(in.Offset), in.Whence)
	out.Offset = uint64(off)
	return t.status(err)
}

func (t *tree) CopyFileRange(_ <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	if t.readOnly {
		return 0, fuse.EROFS
	}
	if in.Flags != 0 {
		return 0, fuse.EINVAL
	}
	n, err := t.ws.CopyRange(t.caller(&in.InHeader), workspace.Ino(in.NodeId), int64(in.OffIn),
		workspace.Ino(in.NodeIdOut), int64(in.OffOut), int64(min(in.Len, maxCopy)))
	return uint32(n), t.status(err)
}

var _ fuse.RawFileSystem = (*tree)(nil)
