package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBrowser in e2e tests the template in a real computer.

// browserFile writes a file of the recipe browser into a temporary directory.
func browserFile(t *testing.T, path string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(name, []byte(recipeFile(t, "browser", path)), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestBrowserUnits: Chromium is not reachable from outside, is not root, has its sandbox, and
// starts only at a connection, so that the template's snapshot does not have it running.
func TestBrowserUnits(t *testing.T) {
	r, err := loadRecipe("browser")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Services.Enable, []string{"browser.socket"}) || len(r.Services.Define) > 0 {
		t.Errorf("services that start by themselves: %+v", r.Services)
	}
	units := map[string]string{}
	for _, f := range r.Files {
		if name, ok := strings.CutPrefix(f.Path, "/etc/systemd/system/"); ok {
			units[name] = f.Content
		}
	}
	for line := range strings.Lines(units["browser.socket"]) {
		if at, ok := strings.CutPrefix(line, "ListenStream="); ok && at != "127.0.0.1:9222\n" && at != "[::1]:9222\n" {
			t.Errorf("listens at %s", at)
		}
	}
	for _, name := range []string{"browser.service", "chromium.service"} {
		if !strings.Contains(units[name], "\nUser=agent\n") || strings.Contains(units[name], "[Install]") {
			t.Errorf("%s does not run as agent, or by itself:\n%s", name, units[name])
		}
	}
	if c := units["chromium.service"]; strings.Contains(c, "sandbox") || strings.Contains(c, "remote-debugging-address") {
		t.Errorf("Chromium has no sandbox, or talks to others:\n%s", c)
	}
}

// TestBrowserCommand tests the parts of the command that do not need Chromium.
func TestBrowserCommand(t *testing.T) {
	program := browserFile(t, "/usr/local/bin/browser")
	for _, c := range []struct {
		args string
		exit int
		says string
	}{
		{"--help", 0, "connectOverCDP('http://localhost:9222')"},
		{"-h open", 0, "Usage: browser"},
		{"", 2, "browser --help"},
		{"open", 2, "browser --help"},
		{"text a b", 2, "browser --help"},
		{"constructor x", 2, "browser --help"},
		{"--nope shot", 2, "--nope"},
		{"shot", 1, "playwright-core"}, // not installed on this host
	} {
		cmd := exec.Command("node", append([]string{program}, strings.Fields(c.args)...)...)
		cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatalf("apt-get install npm: %v", err)
		}
		if cmd.ProcessState.ExitCode() != c.exit || !strings.Contains(string(out), c.says) {
			t.Errorf("browser %s: %v: %s", c.args, err, out)
		}
	}
}
