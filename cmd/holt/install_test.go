package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestInstallScript: packaging/install.sh installs the program of this architecture, and nothing whose sum is wrong.
func TestInstallScript(t *testing.T) {
	dir, bin := t.TempDir(), filepath.Join(t.TempDir(), "bin")
	name, program := "holt_linux_"+runtime.GOARCH, "#!/bin/sh\necho '  \"version\": \"1.2.3\"'\n"
	install := func(sum string) (string, error) {
		for file, content := range map[string]string{name: program, "SHA256SUMS": sum + "  " + name + "\n"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("sh", "../../packaging/install.sh", dir)
		cmd.Env = append(os.Environ(), "HOLT_BIN="+bin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := install(strings.Repeat("0", 64))
	if left, _ := filepath.Glob(bin + "/*"); err == nil || len(left) > 0 || !strings.Contains(out, "the SHA-256 of "+name+" is not that in SHA256SUMS") {
		t.Errorf("with a wrong sum: %v, %q, %v", err, out, left)
	}
	out, err = install(fmt.Sprintf("%x", sha256.Sum256([]byte(program))))
	if got, _ := os.ReadFile(filepath.Join(bin, "holt")); err != nil || string(got) != program || !strings.Contains(out, "is version 1.2.3") {
		t.Errorf("%v, %q, %q", err, out, got)
	}
}
