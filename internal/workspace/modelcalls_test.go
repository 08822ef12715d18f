package workspace

import (
	"maps"
	"slices"
	"strings"
	"syscall"
)

// pick returns one of the inodes that fit, or 0.
func (r *modelRun) pick(fits func(*modelNode) bool) Ino {
	all := slices.Sorted(maps.Keys(r.m.nodes))
	start := r.rng.IntN(len(all))
	for i := range all {
		if ino := all[(start+i)%len(all)]; fits(r.m.nodes[ino]) {
			return ino
		}
	}
	return 0
}

// caller is anybody: the API or a request of an open mount.
func (r *modelRun) caller() Caller {
	c := Caller{UID: uint32(r.rng.IntN(2)) * 1000, GID: 1000}
	if r.rng.IntN(3) == 0 {
		c.Writer = Writer{Kind: "run", Name: "agent", Run: string(rune('a' + r.rng.IntN(6)))}
	}
	open := slices.Sorted(maps.Keys(r.m.epochs))
	if len(open) > 0 && r.rng.IntN(4) > 0 {
		r.unique++
		c.Epoch, c.Unique = open[r.rng.IntN(len(open))], r.unique
	}
	return c
}

func (r *modelRun) name() string {
	if r.rng.IntN(60) == 0 {
		return []string{"", ".", "..", "a/b", "nul\x00", strings.Repeat("x", 256)}[r.rng.IntN(6)]
	}
	if r.rng.IntN(20) == 0 {
		return strings.Repeat("\xff", 255)
	}
	return string(rune('a' + r.rng.IntN(14)))
}

// target is any inode, now and then one that is not there.
func (r *modelRun) target(fits func(*modelNode) bool) Ino {
	switch r.rng.IntN(30) {
	case 0:
		return Ino(r.rng.IntN(int(r.m.next) + 2))
	case 1, 2:
		fits = func(*modelNode) bool { return true }
	}
	return max(r.pick(fits), Root)
}

func (r *modelRun) aDir() Ino {
	if r.rng.IntN(3) == 0 {
		return Root
	}
	return r.target(func(n *modelNode) bool { return n.IsDir() })
}

func (r *modelRun) aFile() Ino { return r.target(func(n *modelNode) bool { return n.IsRegular() }) }

// aName is often one that exists.
func (r *modelRun) aName(dir Ino) string {
	if d := r.m.nodes[dir]; d != nil && len(d.entries) > 0 && r.rng.IntN(4) > 0 {
		names := d.sorted()
		return names[r.rng.IntN(len(names))]
	}
	return r.name()
}

// offset is mostly small; now and then around the border of a window, in one
// of few inodes, so that not everything is huge.
func (r *modelRun) offset(ino Ino) int64 {
	switch {
	case ino%16 == 2 && r.rng.IntN(6) == 0:
		return windowSize - r.rng.Int64N(40_000)
	case r.rng.IntN(3) == 0 && r.m.nodes[ino] != nil && !r.m.nodes[ino].IsDir():
		return r.m.nodes[ino].Size // appends
	case r.rng.IntN(3) == 0:
		return r.rng.Int64N(16) * 4096
	}
	return r.rng.Int64N(70_000)
}

func (r *modelRun) bytes(most int) []byte {
	b := make([]byte, r.rng.IntN(most))
	for i := range b {
		b[i] = byte(1 + r.rng.IntN(255))
	}
	return b
}

// random makes up a call.
func (r *modelRun) random() *call {
	k := &call{c: r.caller()}
	switch n := r.rng.IntN(100); {
	case n < 22:
		k.kind, k.ino, k.name = "make", r.aDir(), r.name()
		kinds := []uint32{syscall.S_IFREG, syscall.S_IFREG, syscall.S_IFREG, syscall.S_IFDIR, syscall.S_IFDIR, syscall.S_IFLNK, syscall.S_IFIFO, syscall.S_IFCHR}
		k.mode = kinds[r.rng.IntN(len(kinds))] | uint32(r.rng.IntN(0o10000))
		switch k.mode & syscall.S_IFMT {
		case syscall.S_IFLNK:
			k.mode, k.name2 = syscall.S_IFLNK|0o777, "to/"+k.name+"!"
		case syscall.S_IFCHR:
			k.flags = r.rng.Uint32()
		case syscall.S_IFREG:
			if r.rng.IntN(6) == 0 {
				k.kind = "tmpfile"
			}
		}
	case n < 26:
		k.kind, k.ino, k.name = "link", r.aDir(), r.name()
		k.ino2 = r.aFile()
	case n < 34:
		k.kind, k.ino = "unlink", r.aDir()
		k.name = r.aName(k.ino)
	case n < 39:
		k.kind, k.ino = "rmdir", r.aDir()
		k.name = r.aName(k.ino)
	case n < 50:
		k.kind, k.ino, k.ino2 = "rename", r.aDir(), r.aDir()
		k.name, k.name2 = r.aName(k.ino), r.aName(k.ino2)
		k.flags = []uint32{0, 0, RenameNoReplace, RenameExchange}[r.rng.IntN(4)]
	case n < 51:
		return r.randomHistory(k)
	case n < 55:
		k.kind, k.ino = "lookup", r.aDir()
		k.c.Unique = 0
		if k.name = r.aName(k.ino); k.name == "." || k.name == ".." || len(k.name) > 255 {
			k.name = "a"
		}
	case n < 90:
		return r.randomBytes(k)
	default:
		return r.randomRest(k)
	}
	return k
}

func (r *modelRun) randomBytes(k *call) *call {
	k.ino = r.aFile()
	switch n := r.rng.IntN(100); {
	case n < 50:
		k.kind, k.off, k.data = "write", r.offset(k.ino), r.bytes([]int{10, 300, 9000, 70_000}[r.rng.IntN(4)])
	case n < 65:
		k.kind, k.set = "setattr", SetAttrs{Mask: SetSize, Size: r.offset(k.ino)}
	case n < 80:
		k.kind, k.off, k.n = "fallocate", r.offset(k.ino), 1+r.rng.Int64N(30_000)
		k.flags = []uint32{0, FallocKeepSize, FallocPunchHole | FallocKeepSize, FallocZeroRange, FallocZeroRange | FallocKeepSize}[r.rng.IntN(5)]
	default:
		k.kind, k.ino2 = "copy", r.aFile()
		k.off, k.from, k.n = r.offset(k.ino), r.offset(k.ino2), 1+r.rng.Int64N(100_000)
	}
	return k
}

func (r *modelRun) randomRest(k *call) *call {
	any := func(*modelNode) bool { return true }
	switch r.rng.IntN(5) {
	case 0:
		k.kind, k.ino, k.name = "setxattr", r.target(any), "user."+string(rune('a'+r.rng.IntN(4)))
		k.data, k.flags = r.bytes(200), uint32(r.rng.IntN(3))
	case 1:
		k.kind, k.ino, k.name = "delxattr", r.target(any), "user."+string(rune('a'+r.rng.IntN(4)))
	case 2:
		k.kind, k.ino = "setattr", r.target(any)
		k.set = SetAttrs{Mask: SetMask(r.rng.IntN(1<<8)) &^ (SetSize | SetAtimeNow), Mode: r.rng.Uint32N(0o10000), UID: r.rng.Uint32N(3),
			GID: r.rng.Uint32N(3), Atime: r.rng.Int64(), Mtime: -r.rng.Int64N(1e18)}
	case 3:
		k.kind, k.ino, k.n = "forget", r.target(any), 1+r.rng.Int64N(3)
		if k.c.Epoch == 0 {
			k.kind, k.id = "begin", byte(1+r.rng.IntN(4))
		} else if r.rng.IntN(2) == 0 {
			k.n = max(1, int64(r.m.lookups[k.ino]))
		}
		k.c.Unique = 0
	default:
		k.kind, k.id = "begin", byte(1+r.rng.IntN(4))
		if len(r.m.epochs) > 2 || k.c.Epoch != 0 && r.rng.IntN(4) == 0 {
			k.kind = "end"
		}
		k.c.Unique = 0
	}
	return k
}
