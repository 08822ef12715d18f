package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestDocker tells the story of the template docker, whose program it builds: no registry is there to ask.
func TestDocker(t *testing.T) {
	t.Parallel()
	requireImages(t, "docker")
	site := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(binDir, "site"), "holt/e2e/testdata/docker/site")
	site.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := site.CombinedOutput(); err != nil {
		t.Fatalf("build site: %v\n%s", err, out)
	}
	stories(t, "testdata/docker", "qemu")
}
