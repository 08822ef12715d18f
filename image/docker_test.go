package image

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The story of the template, in a real computer, is e2e's TestDocker.

// TestDockerEngine: its networks leave the computer's own alone, its logs end, and its containers
// are in a cgroup that the guest agent limits.
func TestDockerEngine(t *testing.T) {
	var engine struct {
		Driver string            `json:"storage-driver"`
		Parent string            `json:"cgroup-parent"`
		Log    map[string]string `json:"log-opts"`
		Bridge netip.Prefix      `json:"bip"`
		Pools  []struct {
			Base netip.Prefix
			Size int
		} `json:"default-address-pools"`
	}
	if err := json.Unmarshal([]byte(recipeFile(t, "docker", "/etc/docker/daemon.json")), &engine); err != nil {
		t.Fatal(err)
	}
	if engine.Driver != "overlay2" || engine.Parent != "/holt/containers" || engine.Log["max-size"] == "" || len(engine.Pools) == 0 {
		t.Errorf("%+v", engine)
	}
	nets := []netip.Prefix{netip.MustParsePrefix("10.0.2.0/24"), engine.Bridge}
	for _, p := range engine.Pools {
		nets = append(nets, p.Base)
	}
	for i, a := range nets {
		for _, b := range nets[:i] {
			if a.Overlaps(b) {
				t.Errorf("%v overlaps %v", a, b)
			}
		}
	}
	r, err := loadRecipe("docker")
	if err != nil || !slices.Contains(r.Services.units(), "docker.service") {
		t.Errorf("nobody waits for the Engine: %v, %v", r.Services, err)
	}
}

// TestDockerCompose: docker compose is docker-compose, with Docker's options before its command.
func TestDockerCompose(t *testing.T) {
	dir := t.TempDir()
	plugin := filepath.Join(dir, "plugin")
	for name, text := range map[string]string{
		plugin:                               recipeFile(t, "docker", "/usr/libexec/docker/cli-plugins/docker-compose"),
		filepath.Join(dir, "docker-compose"): "#!/bin/sh\nprintf '%s|' \"$@\"\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(plugin, args...)
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	for _, c := range []struct{ args, want string }{
		{"compose", ""},
		{"compose up --detach", "up|--detach|"},
		{"--host unix:///x compose -f a.yaml ps", "--host|unix:///x|-f|a.yaml|ps|"},
		{"compose exec web compose up", "exec|web|compose|up|"},
	} {
		if got := run(strings.Fields(c.args)...); strings.TrimSuffix(got, "|") != strings.TrimSuffix(c.want, "|") {
			t.Errorf("docker %s: %q", c.args, got)
		}
	}
	if got := run("compose", "run", "web", "two words", ""); got != "run|web|two words||" {
		t.Errorf("words: %q", got)
	}
	var about struct{ SchemaVersion, Vendor, Version string }
	if err := json.Unmarshal([]byte(run("docker-cli-plugin-metadata")), &about); err != nil || about.SchemaVersion != "0.1.0" || about.Vendor == "" {
		t.Errorf("what docker asks a plugin: %+v, %v", about, err)
	}
}
