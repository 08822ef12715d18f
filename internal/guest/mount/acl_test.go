package mount

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"
	nobody     = "\xff\xff\xff\xff"
)

// sharedACL gives user 1001 all rights, its group rx and others none, limited by the mask.
func sharedACL(owner, mask string) string {
	return "\x02\x00\x00\x00" + "\x01\x00" + owner + "\x00" + nobody + "\x02\x00\x07\x00\xe9\x03\x00\x00" +
		"\x04\x00\x05\x00" + nobody + "\x10\x00" + mask + "\x00" + nobody + "\x20\x00\x00\x00" + nobody
}

// TestACL checks ACLs with setfacl, chmod and accesses by named users.
func TestACL(t *testing.T) { onBoth(t, acls) }

func acls(t *testing.T, _ *workspace.Workspace, dir string) {
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	set := func(name, attr, value string) {
		t.Helper()
		if err := unix.Setxattr(filepath.Join(dir, name), attr, []byte(value), 0); err != nil {
			t.Fatalf("set %s of %s: %v", attr, name, err)
		}
	}
	want := func(name, attr, value string, mode uint32) {
		t.Helper()
		buf := make([]byte, 4096)
		n, err := unix.Getxattr(filepath.Join(dir, name), attr, buf)
		if got := string(buf[:max(n, 0)]); value == "" && err != unix.ENODATA || value != "" && (err != nil || got != value) {
			t.Errorf("%s of %s: %x, %v; want %x", attr, name, got, err, value)
		}
		if st := stat(t, filepath.Join(dir, name)); st.Mode&0o7777 != mode {
			t.Errorf("%s: mode %#o, want %#o", name, st.Mode&0o7777, mode)
		}
	}
	writeFile(t, filepath.Join(dir, "f"), "secret")
	set("f", aclAccess, sharedACL("\x06", "\x04"))
	want("f", aclAccess, sharedACL("\x06", "\x04"), 0o640)
	as(t, 1001, dir, "cat f; ! echo x 2>/dev/null >> f")
	as(t, 1002, dir, "! cat f 2>/dev/null")
	if err := os.Chmod(filepath.Join(dir, "f"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("f", aclAccess, sharedACL("\x06", "\x00"), 0o600)
	as(t, 1001, dir, "! cat f 2>/dev/null")

	sh(t, dir, "mkdir -m 755 d")
	set("d", aclDefault, sharedACL("\x07", "\x07"))
	sh(t, dir, "umask 077; touch d/f; mkdir d/s d/s/t; mkfifo d/p; ln -s f d/l; touch f2")
	for name, mode := range map[string]uint32{"d/f": 0o660, "d/p": 0o660} {
		want(name, aclAccess, sharedACL("\x06", "\x06"), mode)
		want(name, aclDefault, "", mode)
	}
	for _, name := range []string{"d/s", "d/s/t"} {
		want(name, aclAccess, sharedACL("\x07", "\x07"), 0o770)
		want(name, aclDefault, sharedACL("\x07", "\x07"), 0o770)
	}
	want("f2", aclAccess, "", 0o600)
	as(t, 1001, dir, "echo x > d/s/t/mine")
	if err := unix.Removexattr(filepath.Join(dir, "d"), aclDefault); err != nil {
		t.Error(err)
	}
	if err := unix.Removexattr(filepath.Join(dir, "d"), aclDefault); err != nil {
		t.Errorf("remove it twice: %v", err)
	}
	sh(t, dir, "umask 077; touch d/f3")
	want("d/f3", aclAccess, "", 0o600)
	for name, err := range map[string]error{"f": unix.EACCES, "d": nil} {
		if got := unix.Setxattr(filepath.Join(dir, name), aclDefault, []byte(sharedACL("\x07", "\x07")), 0); got != err {
			t.Errorf("a default ACL of %s: %v, want %v", name, got, err)
		}
	}
}

// TestACLKeepsSetGroupID: setting an ACL keeps the set-group-id bit if the
// setter is in the group, by any of its lists, and clears it otherwise.
func TestACLKeepsSetGroupID(t *testing.T) { onBoth(t, aclKeepsSetGroupID) }

func aclKeepsSetGroupID(t *testing.T, _ *workspace.Workspace, dir string) {
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "team")
	for actor, kept := range map[string]bool{"one of the group": true, "one also of the group": true, "a stranger": false} {
		sh(t, dir, "rm -rf team; mkdir team; chown 1234:55 team; chmod 2770 team")
		actAs(t, actor, "set ACL", path)
		if st := stat(t, path); st.Mode&0o2000 != 0 != kept {
			t.Errorf("by %s: mode %#o", actor, st.Mode)
		}
	}
}
