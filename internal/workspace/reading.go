package workspace

// reading is what can be done with a state of a workspace that changes nothing:
// the present (a Tree) or a checkpoint (a View).
type reading interface {
	lookup(dir Ino, name string) (Attr, error)
	readDir(dir Ino, cookie uint64, plus bool, fn func(DirEntry) bool) error
	names(dir Ino, after string, most int) ([]DirEntry, error)
	GetAttr(ino Ino) (Attr, error)
	Readlink(ino Ino) (string, error)
	Read(ino Ino, off int64, b []byte) (int, error)
	Lseek(ino Ino, off int64, whence uint32) (int64, error)
	ListXattr(ino Ino) ([]string, error)
	GetXattr(ino Ino, name string) ([]byte, error)
}

func (t *Tree) lookup(dir Ino, name string) (Attr, error) { return t.Lookup(Caller{}, dir, name) }

func (t *Tree) readDir(dir Ino, cookie uint64, plus bool, fn func(DirEntry) bool) error {
	return t.ReadDir(Caller{}, dir, cookie, plus, fn)
}

func (v *View) lookup(dir Ino, name string) (Attr, error) { return v.Lookup(dir, name) }

func (v *View) readDir(dir Ino, cookie uint64, plus bool, fn func(DirEntry) bool) error {
	return v.ReadDir(dir, cookie, plus, fn)
}
