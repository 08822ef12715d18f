package jail

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("only root makes jails")
	}
	if err := Check("/bin/sh", t.TempDir()); err != nil && !strings.Contains(err.Error(), "exit status") {
		t.Fatalf("this host has no jails: %v", err)
	}
}

// run runs a script in a jail and returns its output.
func run(t *testing.T, c Cell, script string) (string, error) {
	t.Helper()
	return says(t, c, exec.Command("/bin/sh", "-c", "exec 2>&1; "+script))
}

// says runs a program in a jail and returns its output.
func says(t *testing.T, c Cell, cmd *exec.Cmd) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out")
	err := Thread(func() error {
		out, err := os.Create(path)
		if err != nil {
			return err
		}
		defer out.Close()
		cmd.Stdout = out
		if err := c.Start(cmd); err != nil {
			return err
		}
		return cmd.Wait()
	})
	said, no := os.ReadFile(path)
	if no != nil {
		t.Fatal(no)
	}
	return string(said), err
}

func file(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Shown files are readable, and writable only where requested; their owner on
// the disk does not change. Other files do not exist.
func TestShownFiles(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	own, base, other := file(t, dir, "own", "mine "), file(t, dir, "base", "shared"), file(t, dir, "other", "secret")
	c := Cell{User: User("a"), Files: []File{{Path: own, Write: true}, {Path: base}}}
	said, _ := run(t, c, "cat "+own+" "+base+"; echo more >>"+own+"; echo bad >>"+base+"; cat "+other+"; id -u; cat /proc/self/status; ls /")
	if !strings.HasPrefix(said, "mine shared") || !strings.Contains(said, "Read-only file system") || !strings.Contains(said, other+": No such file") {
		t.Error(said)
	}
	if b, _ := os.ReadFile(own); string(b) != "mine more\n" {
		t.Errorf("own: %q", b)
	}
	if b, _ := os.ReadFile(base); string(b) != "shared" {
		t.Errorf("base: %q", b)
	}
	if info, err := os.Stat(own); err != nil || ownerOf(info) != (owner{}) || info.Mode().Perm() != 0o600 {
		t.Errorf("on the host it is %v of %v, %v", info.Mode(), ownerOf(info), err)
	}
}
