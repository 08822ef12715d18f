package workspace

import (
	"bytes"
	"encoding/binary"
	"math"
	"syscall"
	"testing"
)

// aclOf encodes entries of three: tag, permissions, id.
func aclOf(entries ...uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for i := 0; i < len(entries); i += 3 {
		b = binary.LittleEndian.AppendUint16(b, uint16(entries[i]))
		b = binary.LittleEndian.AppendUint16(b, uint16(entries[i+1]))
		b = binary.LittleEndian.AppendUint32(b, entries[i+2])
	}
	return b
}

const noID = math.MaxUint32

// sharedACL gives user 1001 the permissions named, and the others theirs.
func sharedACL(user, mask uint32) []byte {
	return aclOf(aclUserObj, 7, noID, aclUser, user, 1001, aclGroupObj, 5, noID, aclMask, mask, noID, aclOther, 0, noID)
}

func TestParseACL(t *testing.T) {
	long := aclOf(aclUserObj, 7, noID)
	for id := range uint32(512) {
		long = append(long, aclOf(aclUser, 7, id)[4:]...)
	}
	for name, c := range map[string]struct {
		value []byte
		want  error
	}{
		"minimal":          {aclOf(aclUserObj, 7, noID, aclGroupObj, 5, noID, aclOther, 0, noID), nil},
		"named":            {sharedACL(7, 7), nil},
		"a group too":      {aclOf(1, 7, noID, 2, 6, 1, 2, 6, 2, 4, 5, noID, 8, 7, 3, 16, 7, noID, 32, 0, noID), nil},
		"nothing":          {nil, syscall.EINVAL},
		"no entries":       {aclOf(), syscall.EINVAL},
		"cut off":          {sharedACL(7, 7)[:20], syscall.EINVAL},
		"a byte more":      {append(sharedACL(7, 7), 0), syscall.EINVAL},
		"version 1":        {append([]byte{1, 0, 0, 0}, sharedACL(7, 7)[4:]...), syscall.EOPNOTSUPP},
		"no mask":          {aclOf(1, 7, noID, 2, 7, 1, 4, 5, noID, 32, 0, noID), syscall.EINVAL},
		"no owner":         {aclOf(4, 5, noID, 32, 0, noID), syscall.EINVAL},
		"no group":         {aclOf(1, 7, noID, 32, 0, noID), syscall.EINVAL},
		"no others":        {aclOf(1, 7, noID, 4, 5, noID), syscall.EINVAL},
		"two owners":       {aclOf(1, 7, noID, 1, 7, noID, 4, 5, noID, 32, 0, noID), syscall.EINVAL},
		"two masks":        {aclOf(1, 7, noID, 4, 5, noID, 16, 7, noID, 16, 7, noID, 32, 0, noID), syscall.EINVAL},
		"another order":    {aclOf(4, 5, noID, 1, 7, noID, 32, 0, noID), syscall.EINVAL},
		"a permission 8":   {aclOf(1, 8, noID, 4, 5, noID, 32, 0, noID), syscall.EINVAL},
		"a tag of nothing": {aclOf(1, 7, noID, 3, 7, noID, 4, 5, noID, 32, 0, noID), syscall.EINVAL},
		"a large tag":      {aclOf(1, 7, noID, 4, 5, noID, 32, 0, noID, 64, 0, noID), syscall.EINVAL},
		"nobody named":     {aclOf(1, 7, noID, 2, 7, noID, 4, 5, noID, 16, 7, noID, 32, 0, noID), syscall.EINVAL},
		"too long":         {long, syscall.E2BIG},
	} {
		if _, err := parseACL(c.value); err != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func FuzzParseACL(f *testing.F) {
	f.Add(sharedACL(7, 7))
	f.Add(aclOf(aclUserObj, 7, noID, aclGroupObj, 5, noID, aclOther, 0, noID))
	f.Add([]byte{2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseACL(b)
		if err != nil {
			return
		}
		if mode := a.mode(); mode > 0o777 || a.with(mode).mode() != mode {
			t.Errorf("mode %#o", mode)
		}
		again, err := parseACL(a.encode())
		if err != nil || !bytes.Equal(again.encode(), a.encode()) {
			t.Errorf("%x is %x again: %v", b, again.encode(), err)
		}
	})
}

func (f *fixture) wantACL(path, name string, want []byte) {
	f.Helper()
	got, err := f.t.GetXattr(f.must(path).Ino, name)
	if want == nil && err == syscall.ENODATA {
		return
	}
	if err != nil || !bytes.Equal(got, want) {
		f.Errorf("%s of %s: %x, %v; want %x", name, path, got, err, want)
	}
}

func (f *fixture) chmod(path string, mode uint32) {
	f.Helper()
	_, err := f.t.SetAttr(Caller{}, f.must(path).Ino, SetAttrs{Mask: SetMode, Mode: mode})
	f.ok(err)
}

// TestACL checks that an access ACL and the mode are two views of one thing,
// that a default ACL is inherited in place of the umask, and that both survive
// a recovery from the journal.
func TestACL(t *testing.T) {
	f := newFixture(t, Options{})
	f.mkdir("d")
	f.put("f", "x")
	f.ok(f.t.SetXattr(Caller{}, f.must("f").Ino, aclAccess, sharedACL(6, 6), 0))
	f.chmod("f", 0o640)
	f.ok(f.t.SetXattr(Caller{}, f.must("d").Ino, aclDefault, sharedACL(7, 7), 0))
	umask := Caller{Umask: 0o077}
	_, err := f.t.Create(umask, f.must("d").Ino, "f", 0o666)
	f.ok(err)
	_, err = f.t.Mkdir(umask, f.must("d").Ino, "s", 0o777)
	f.ok(err)
	_, err = f.t.Symlink(umask, f.must("d").Ino, "l", "f")
	f.ok(err)
	_, err = f.t.Create(umask, Root, "plain", 0o666)
	f.ok(err)
	look := func() {
		t.Helper()
		f.wantACL("f", aclAccess, aclOf(1, 6, noID, 2, 6, 1001, 4, 5, noID, 16, 4, noID, 32, 0, noID))
		f.wantACL("d/f", aclAccess, aclOf(1, 6, noID, 2, 7, 1001, 4, 5, noID, 16, 6, noID, 32, 0, noID))
		f.wantACL("d/f", aclDefault, nil)
		f.wantACL("d/s", aclAccess, sharedACL(7, 7))
		f.wantACL("d/s", aclDefault, sharedACL(7, 7))
		f.wantACL("d/l", aclAccess, nil)
		f.wantACL("plain", aclAccess, nil)
		for path, mode := range map[string]uint32{"f": 0o640, "d/f": 0o660, "d/s": 0o770, "d/l": 0o777, "plain": 0o600} {
			if a := f.must(path); a.Mode&0o7777 != mode {
				t.Errorf("%s: mode %#o, want %#o", path, a.Mode&0o7777, mode)
			}
		}
	}
	look()
	f.kill()
	look()

	link, file := f.must("d/l").Ino, f.must("f").Ino
	f.want(f.t.SetXattr(Caller{}, link, aclAccess, sharedACL(7, 7), 0), syscall.EOPNOTSUPP)
	f.want(f.t.SetXattr(Caller{}, file, aclDefault, sharedACL(7, 7), 0), syscall.EACCES)
	f.want(f.t.SetXattr(Caller{}, file, aclAccess, []byte("nonsense"), 0), syscall.EINVAL)
	f.chmod("f", 0o2770)
	f.ok(f.t.SetXattr(Caller{}, file, aclAccess, aclOf(1, 6, noID, 4, 4, noID, 32, 4, noID), XattrKillSetGID))
	if names, err := f.t.ListXattr(file); len(names) != 0 || err != nil || f.must("f").Mode&0o7777 != 0o644 {
		t.Errorf("an ACL that the mode says: %q, %v, mode %#o", names, err, f.must("f").Mode)
	}
	f.ok(f.t.RemoveXattr(Caller{}, file, aclAccess)) // it is always there, as the mode
}

// TestACLIsKept follows ACLs through a checkpoint, a diff, a restore, a fork, a
// merge with a chmod on the other side, an export and an import.
func TestACLIsKept(t *testing.T) {
	f, g := family(t)
	f.checkpoint("before")
	f.ok(g.t.SetXattr(Caller{}, g.must("top").Ino, aclAccess, sharedACL(6, 6), 0))
	f.ok(g.t.SetXattr(Caller{}, g.must("src").Ino, aclDefault, sharedACL(7, 7), 0))
	g.chmod("top", 0o644)
	g.checkpoint("shared")
	f.chmod("top", 0o640)
	f.merge(g, MergeOptions{})
	merged := aclOf(1, 6, noID, 2, 6, 1001, 4, 5, noID, 16, 4, noID, 32, 0, noID)
	look := func(f *fixture) {
		f.Helper()
		f.wantACL("top", aclAccess, merged)
		f.wantACL("src", aclDefault, sharedACL(7, 7))
	}
	look(f)
	f.checkpoint("merged")
	f.wantLines(f.changes("before", "merged", "/src", "/top"), "metadata /src", "metadata /top")
	f.ok(f.t.RemoveXattr(Caller{}, f.must("top").Ino, aclAccess))
	f.restore("merged")
	look(f)
	look(f.fork(ForkOptions{}))
	id, _ := f.t.CheckpointNamed("merged")
	v, err := f.t.View(id)
	f.ok(err)
	if got, err := v.GetXattr(f.must("top").Ino, aclAccess); err != nil || !bytes.Equal(got, merged) {
		t.Errorf("at the checkpoint: %x, %v", got, err)
	}
	h := newFixture(t, Options{})
	_, err = h.bring(f.packed(ExportSpec{Path: "/"}), ImportSpec{Path: "/"})
	f.ok(err)
	look(h)
}
