package machine

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestIsInit: only PID 1 of a namespace directly below is a machine's process.
func TestIsInit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("making PID namespaces needs root")
	}
	outer := exec.Command("sh", "-c", "unshare --pid --fork sleep infinity & echo; wait")
	outer.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	out, err := outer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := outer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		outer.Process.Kill()
		outer.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	child := func(of int) (pid int) { // the shell has started unshare, but that not yet its child
		for pid == 0 {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", of, of))
			if err != nil {
				t.Fatal(err)
			}
			pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		return pid
	}
	unshare := child(outer.Process.Pid)
	inner := child(unshare)
	for pid, want := range map[int]bool{os.Getpid(): false, outer.Process.Pid: true, unshare: false, inner: false} {
		if got := IsInit(pid); got != want {
			t.Errorf("process %d: %v", pid, got)
		}
	}
}

// FuzzMountinfo: only connections named in the table are aborted.
func FuzzMountinfo(f *testing.F) {
	f.Add([]byte("36 35 0:51 / /home/agent rw - fuse.holt workspace rw\n"))
	f.Add([]byte("36 35 0:../51 / /x rw - fuse x\n36 35 0:+1 / /x rw - fuse x\n1 1 0:7 / / rw - fusectl x\n"))
	f.Fuzz(func(t *testing.T, table []byte) {
		found := map[uint32]bool{}
		addFuse(found, table)
		for c := range found {
			if !regexp.MustCompile(fmt.Sprintf(`\b0:0*%d\b`, c)).Match(table) {
				t.Errorf("%d", c)
			}
		}
	})
}
