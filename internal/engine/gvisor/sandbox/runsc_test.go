package sandbox

import (
	"os/exec"
	"strings"
	"testing"
)

// TestChildrenInheritNothing: gVisor opens a pipe as it is loaded, which children would have.
func TestChildrenInheritNothing(t *testing.T) {
	Dispatch()
	out, err := exec.Command("ls", "/proc/self/fd").Output()
	if got := strings.Fields(string(out)); err != nil || strings.Join(got, " ") != "0 1 2 3" { // 3 is the directory
		t.Errorf("a child has descriptors %v, %v", got, err)
	}
}
