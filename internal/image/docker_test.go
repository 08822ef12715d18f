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

// TestDocker in e2e tests the template in a real computer.

// TestDockerEngine: its networks do not overlap with the computer's, its logs are bounded, and its
// containers are in a cgroup that the guest agent limits.
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
		t.Errorf("readiness does not include the Engine: %v, %v", r.Services, err)
	}
}

// TestDockerPlugins: only Compose and buildx come from the next release of Debian, from the mirror of the build.
func TestDockerPlugins(t *testing.T) {
	bin, work := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"apt-get":        `for a; do case $a in *next.sources) cat "${a#*=}" >` + work + `/sources;; download) touch docker-compose_2.26.1-4_amd64.deb docker-buildx_0.13_amd64.deb;; esac; done; echo "$@" >>` + work + "/apt",
		"dpkg":           `echo "$@" >` + work + "/dpkg",
		"docker-compose": "echo 2.26.1-4",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sources := formatSources([]source{{URI: "http://bookworm.example/debian", Suites: []string{"bookworm", "bookworm-updates"}}})
	if err := os.WriteFile(filepath.Join(work, "0000build.sources"), sources, 0o644); err != nil {
		t.Fatal(err)
	}
	script := strings.ReplaceAll(recipeFile(t, "docker", "/usr/local/lib/docker/install-plugins"), "/etc/apt/sources.list.d", work)
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TMPDIR=" + work}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "2.26") {
		t.Fatalf("%v: %s", err, out)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(work, name))
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	if got := read("sources"); !strings.Contains(got, "Suites: trixie trixie-updates\n") || !strings.Contains(got, "URIs: http://bookworm.example/debian\n") {
		t.Errorf("sources: %s", got)
	}
	if got := read("apt"); !strings.Contains(got, " download docker-compose docker-buildx\n") || strings.Contains(got, " install") {
		t.Errorf("apt-get: %s", got)
	}
	if got := read("dpkg"); got != "--install docker-compose_2.26.1-4_amd64.deb docker-buildx_0.13_amd64.deb\n" {
		t.Errorf("dpkg: %s", got)
	}
	if left, err := filepath.Glob(work + "/tmp.*"); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
