package workspace

import "syscall"

// Seeds are the start-up files of shells at the top of a new workspace. Until it
// is changed, a seed is found by its name and not listed, so that a new home is
// empty for programs that want an empty directory, and has the files that
// installers look for before they write to them.
//
// A seed that was never changed has the version of its bytes that Seed gave it,
// and a ctime equal to its btime. Every change makes the ctime a later one;
// going back to a checkpoint gives both back.
var seedNames = [...]string{".profile", ".bashrc"}

const (
	lastSeed    = Root + Ino(len(seedNames)) // seeds are the first inodes of a workspace
	seedVersion = 2                          // the first writer's, after the format's
)

var seedWriter = Writer{Kind: "system", Name: "holt"}

// Seed gives a workspace that is new, and has no other files, its start-up
// files: their contents by name. The caller's user owns them, and the top.
func (w *Workspace) Seed(c Caller, contents map[string][]byte) error {
	c.Writer = seedWriter
	_, err := w.tree.SetAttr(c, Root, SetAttrs{Mask: SetMode | SetUID | SetGID, Mode: 0o755, UID: c.UID, GID: c.GID})
	for _, name := range seedNames {
		var a Attr
		if err == nil {
			a, err = w.tree.Create(c, Root, name, 0o644)
		}
		if err == nil {
			_, err = w.tree.Write(c, a.Ino, 0, contents[name])
		}
		if err == nil {
			_, err = w.tree.SetAttr(c, a.Ino, SetAttrs{Mask: SetMtime | SetCtime, Mtime: a.Btime, Ctime: a.Btime})
		}
	}
	if err != nil {
		return diskError("write start-up files", err)
	}
	return w.tree.Sync()
}

func isSeedName(name string) bool { return name == seedNames[0] || name == seedNames[1] }

// unlisted tells whether an inode is a seed as it was made.
func (n *node) unlisted() bool {
	return n.ino > Root && n.ino <= lastSeed && n.data == seedVersion && n.ctime == n.btime && n.mode&syscall.S_IFMT == syscall.S_IFREG
}

// hidden tells whether a directory does not list an inode under a name.
func (n *node) hidden(dir Ino, name string) bool {
	return dir == Root && isSeedName(name) && n.unlisted()
}

// hides tells whether a directory does not list an entry.
func (t *Tree) hides(dir Ino, name string, ino Ino) bool {
	if dir != Root || ino > lastSeed || !isSeedName(name) {
		return false
	}
	in, err := t.get(ino)
	return err == nil && in.hidden(dir, name)
}

// Unlisted tells whether ino is a start-up file that the top does not list until
// it is changed.
func (t *Tree) Unlisted(ino Ino) bool {
	if ino <= Root || ino > lastSeed {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	in, err := t.get(ino)
	return err == nil && in.unlisted()
}
