package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holt"
	"holt/internal/engine/machine/machinetest"
)

// TestOrdinaryUser: an ordinary user, whose PATH has no sbin, has the tools of root for images, and needs newuidmap as well.
func TestOrdinaryUser(t *testing.T) {
	dir, err := os.MkdirTemp("", "holt-user") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, err := os.ReadFile(machinetest.Holt(t))
	own := filepath.Join(dir, "holt")
	if err := errors.Join(err, os.WriteFile(own, program, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(own, "doctor", "--json", "--data-dir", filepath.Join(dir, "data"))
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "HOME=" + dir}, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output() // its status says that something is wrong
	var findings []holt.Finding
	if jsonErr := json.Unmarshal(out, &findings); jsonErr != nil {
		t.Fatal(jsonErr, err)
	}
	i := slices.IndexFunc(findings, func(f holt.Finding) bool { return f.Name == "image tools" })
	if i < 0 {
		t.Fatalf("%s", out)
	}
	_, err = exec.LookPath("newuidmap")
	if f := findings[i]; strings.Contains(f.Found, "mkfs.ext4") || (err != nil) != slices.Contains(f.Install, "uidmap") {
		t.Errorf("%+v", f)
	}
}
