package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEnvironmentOfSessions: a login shell reads /etc/environment without executing its lines.
func TestEnvironmentOfSessions(t *testing.T) {
	script, err := ground.ReadFile("ground/etc/profile.d/holt.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "environment")
	lines := `# a comment=1
GREET=hi there
JAVA_OPTS=-Xmx1g -Xms1g
 INDENTED=1
export EXPORTED=yes
QUOTED="in two words"
SINGLE='it is'
HALF="
EMPTY=
RUN=$(touch ran) ` + "`touch ran`" + `;touch ran
AND=a=b & touch ran
no variable
1BAD=1
B-AD=1
=1
LAST=end`
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"GREET": "hi there", "JAVA_OPTS": "-Xmx1g -Xms1g", "INDENTED": "1", "EXPORTED": "yes", "QUOTED": "in two words", "SINGLE": "it is",
		"HALF": `"`, "EMPTY": "", "RUN": "$(touch ran) `touch ran`;touch ran", "AND": "a=b & touch ran", "LAST": "end"}
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		cmd := exec.Command(shell, "-eu", "-c", strings.ReplaceAll(string(script), "/etc/environment", file)+"\nexec env -0")
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=/root"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", shell, err, out)
		}
		got := map[string]string{}
		for _, variable := range strings.Split(string(out), "\x00") {
			switch name, value, ok := strings.Cut(variable, "="); name {
			case "PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_":
			default:
				if ok {
					got[name] = value
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", shell, diff)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a line was executed")
	}
}
