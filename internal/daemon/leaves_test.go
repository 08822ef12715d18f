package daemon_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holt"
)

// TestWorkspaceIsNotLeft: who may change files of a workspace changes nothing else in the computer that runs with it,
// whatever symbolic links lie in it and whoever he is: the guest does that as root. A token that is the user agent's makes
// nothing root's.
func TestWorkspaceIsNotLeft(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	ctx := t.Context()
	owner := d.client(t, d.token("default", "owner"))
	c, err := owner.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein"}, "")
	if err != nil {
		t.Fatal(err)
	}
	ws, err := owner.Workspaces.Get(ctx, "einstein")
	if err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "keep"), []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, target := range map[string]string{"/esc": outside, "/up": "../.." + outside, "/tofile": outside + "/keep", "/in": "/home/agent/dir"} {
		if _, err := owner.WorkspaceFiles.Symlink(ctx, "einstein", holt.SymlinkSpec{Path: holt.OSString(path), Target: holt.OSString(target)}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := owner.WorkspaceFiles.Mkdir(ctx, "einstein", holt.MkdirSpec{Path: "/dir"}, ""); err != nil {
		t.Fatal(err)
	}
	for who, scopes := range map[string][]holt.Scope{
		"tenant": nil, "agent": {holt.Scope("computer:" + string(c.ID)), "user:agent"}, "workspace": {holt.Scope("workspace:" + string(ws.ID))},
	} {
		by := d.client(t, d.token("default", who, scopes...))
		type op struct {
			name string
			do   func(ctx context.Context, dir, user string) error
		}
		ops := []op{
			{"write", func(ctx context.Context, dir, user string) error {
				_, err := by.WorkspaceFiles.Write(ctx, "einstein", dir+"/new", holt.WriteSpec{User: user}, strings.NewReader("x"))
				return err
			}},
			{"upload", func(ctx context.Context, dir, user string) error {
				_, err := by.Uploads.Send(ctx, holt.UploadSpec{Workspace: "einstein", Path: holt.OSString(dir + "/sent"), Size: 1, User: user}, strings.NewReader("x"), nil)
				return err
			}},
			{"mkdir", func(ctx context.Context, dir, user string) error {
				_, err := by.WorkspaceFiles.Mkdir(ctx, "einstein", holt.MkdirSpec{Path: holt.OSString(dir + "/a/b"), Parents: true, User: user}, "")
				return err
			}},
			{"symlink", func(ctx context.Context, dir, user string) error {
				_, err := by.WorkspaceFiles.Symlink(ctx, "einstein", holt.SymlinkSpec{Path: holt.OSString(dir + "/link"), Target: "x", User: user}, "")
				return err
			}},
		}
		for _, o := range ops {
			if err := o.do(ctx, "/in", ""); err != nil {
				t.Errorf("%s, %s within: %v", who, o.name, err)
			}
			for _, dir := range []string{"/esc", "/up"} {
				if err := o.do(ctx, dir, ""); holt.CodeOf(err) != holt.InvalidArgument {
					t.Errorf("%s, %s by %s: %v", who, o.name, dir, err)
				}
			}
			_ = o.do(ctx, "/../../.."+outside, "") // what is above the top is the top
			err := o.do(ctx, "/in", "root")
			if who == "agent" && holt.CodeOf(err) != holt.Forbidden || who != "agent" && err != nil {
				t.Errorf("%s, %s as root: %v", who, o.name, err)
			}
		}
		for name, err := range map[string]error{
			"write of a link": func() error {
				_, err := by.WorkspaceFiles.Write(ctx, "einstein", "/tofile", holt.WriteSpec{}, strings.NewReader("x"))
				return err
			}(),
			"remove":           by.WorkspaceFiles.Remove(ctx, "einstein", "/esc/keep", false, ""),
			"recursive remove": by.WorkspaceFiles.Remove(ctx, "einstein", "/up/keep", true, ""),
			"rename":           by.WorkspaceFiles.Rename(ctx, "einstein", holt.RenameSpec{From: "/esc/keep", To: "/dir/kept"}, ""),
		} {
			if holt.CodeOf(err) != holt.InvalidArgument {
				t.Errorf("%s, %s: %v", who, name, err)
			}
		}
		if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
			t.Fatalf("%s: outside are %v, %v", who, left, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(outside, "keep")); err != nil || string(got) != "as it was" {
		t.Errorf("%q, %v", got, err)
	}
}
